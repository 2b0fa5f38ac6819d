"""What a RoutedStream and control leave for others to read, written without them, for tests."""

import base64
import json
import sqlite3
import zlib
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import pyroute as pr

BIG = 2**60 + 1


class Stream:
    """A stream whose batches are written one by one."""

    def __init__(self, directory, tasks=4, keys=40, seed=0):
        self.directory = Path(directory)
        for name in ("metrics", "manifests", "stats", "routers"):
            (self.directory / name).mkdir(parents=True, exist_ok=True)
        self.router, self.random, self.sequence = pr.Router(tasks), np.random.default_rng(seed), 0
        self.keys = np.arange(keys, dtype=np.int64)
        self.keys[0] = BIG
        self.costs = 1000.0 / np.arange(1, keys + 1)

    def batch(self, **changes):
        """Commit one batch, with a plan that is applied."""
        snapshot = pr.Snapshot(self.keys, self.costs, np.full(len(self.keys), 64))
        tasks = self.router.route(self.keys)
        loads = np.bincount(tasks, self.costs, minlength=len(self.router.tasks))
        plan = pr.rebalance(snapshot, self.router, max_imbalance=0.02)
        applied = plan.changes
        row = {
            "sequence": self.sequence,
            "batch_id": self.sequence,
            "router_version": self.router.version,
            "table": len(self.router.table),
            "rows": int(self.costs.sum()),
            "state_rows": len(self.keys),
            "state_bytes": 64 * len(self.keys),
            "keys_moved": len(plan.migrations) if applied else 0,
            "bytes_moved": plan.migration_cost if applied else 0,
            "expected_imbalance": plan.imbalance,
            "seconds": 1.5,
            "applied": applied,
            "reason": "applied: no gate" if applied else "nothing to change",
            "tasks": list(self.router.tasks),
            "loads": loads.tolist(),
            **changes,
        }
        if applied:
            self.router = self.router.apply(plan)
        stats = f"stats/{self.sequence:012d}-x"
        document = {"snapshot": base64.b64encode(snapshot.to_bytes()).decode()}
        self._write(stats, zlib.compress(json.dumps(document).encode()))
        router = f"routers/{self.router.version:012d}-x"
        self._write(router, self.router.to_bytes())
        pq.write_table(pa.Table.from_pylist([row]), self._hidden("metrics.tmp"))
        self._hidden("metrics.tmp").rename(self.directory / f"metrics/{self.sequence:012d}.parquet")
        manifest = {"job": {"name": "clicks"}, "stats": stats, "next_router": {"name": router}}
        self._write(f"manifests/{self.sequence:012d}.json", json.dumps(manifest).encode())
        self.sequence += 1
        return row

    def _hidden(self, name):
        return self.directory / f".{name}"

    def _write(self, name, data):
        self._hidden("tmp").write_bytes(data)
        self._hidden("tmp").rename(self.directory / name)


class Control:
    """A store of control, as its header draws it; schema 1 has no forecasts."""

    TABLES = """
        CREATE TABLE pyroute_about (name TEXT PRIMARY KEY, value TEXT NOT NULL);
        CREATE TABLE layouts (id INTEGER PRIMARY KEY AUTOINCREMENT, names TEXT NOT NULL UNIQUE);
        CREATE TABLE samples (id INTEGER PRIMARY KEY AUTOINCREMENT, host TEXT NOT NULL,
            worker TEXT NOT NULL, sent DOUBLE NOT NULL, received DOUBLE NOT NULL,
            layout INTEGER NOT NULL, data BLOB NOT NULL);
        CREATE TABLE decisions (id INTEGER PRIMARY KEY AUTOINCREMENT, time DOUBLE NOT NULL,
            edge TEXT NOT NULL, version INTEGER NOT NULL, source TEXT NOT NULL,
            ratio TEXT NOT NULL, reasons TEXT NOT NULL);
        CREATE TABLE events (id INTEGER PRIMARY KEY AUTOINCREMENT, time DOUBLE NOT NULL,
            kind TEXT NOT NULL, text TEXT NOT NULL);
    """
    FORECASTS = """
        CREATE TABLE forecasts (id INTEGER PRIMARY KEY AUTOINCREMENT, time DOUBLE NOT NULL,
            due DOUBLE NOT NULL, edge TEXT NOT NULL, source TEXT NOT NULL, seconds TEXT NOT NULL);
    """

    def __init__(self, path, schema=2):
        self.path = Path(path)
        self.connection = sqlite3.connect(self.path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode=WAL")
        self.connection.executescript(self.TABLES + (self.FORECASTS if schema > 1 else ""))
        self.connection.execute("INSERT INTO pyroute_about VALUES ('schema', ?)", [str(schema)])

    def __del__(self):
        self.connection.close()

    def turn(self, time, workers, host="h"):
        """One report of each worker: its milliseconds per record, and as many records a second."""
        for worker, value in workers.items():
            features = {"records_per_s": value, "service_ms": value}
            names = json.dumps(sorted(features))
            self.connection.execute("INSERT OR IGNORE INTO layouts (names) VALUES (?)", [names])
            found = self.connection.execute("SELECT id FROM layouts WHERE names = ?", [names])
            data = np.array([features[name] for name in sorted(features)], "<f8").tobytes()
            self.connection.execute(
                "INSERT INTO samples (host, worker, sent, received, layout, data)"
                " VALUES (?, ?, ?, ?, ?, ?)",
                [host, worker, time, time, found.fetchone()[0], data],
            )

    def foretell(self, time, workers, source="forecast"):
        """Milliseconds per record that a model expects of the turn a second later."""
        said = {worker: value / 1000 for worker, value in workers.items()}
        self.connection.execute(
            "INSERT INTO forecasts (time, due, edge, source, seconds) VALUES (?, ?, 'urls', ?, ?)",
            [time, time + 1.0, source, json.dumps(said)],
        )

    def decide(self, version, ratio, why):
        """A ratio that was published."""
        self.connection.execute(
            "INSERT INTO decisions (time, edge, version, source, ratio, reasons)"
            " VALUES (?, 'urls/spout->count', ?, 'measured', ?, ?)",
            [float(version), version, json.dumps(ratio), json.dumps([why])],
        )
