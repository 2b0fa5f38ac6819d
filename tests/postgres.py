"""A real PostgreSQL for tests: a cluster of its own in a folder, on a free port of loopback.

PostgreSQL refuses to run as root; there it runs as the user `postgres` of Debian's package.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import pytest


def binaries() -> Path | None:
    """Where initdb and pg_ctl are."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if found:
        return found[-1].parent
    path = shutil.which("pg_ctl")
    return Path(path).resolve().parent if path else None


def missing() -> str | None:
    """What is not there, or None."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is missing: pip install 'pyroute-core[postgres]'"
    if binaries() is None:
        return "PostgreSQL is missing: apt-get install postgresql"
    return None


def as_user() -> list[str]:
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


def require() -> None:
    """Skip where something is missing, or fail where everything is required."""
    why = missing()
    if why is not None and os.environ.get("PYROUTE_REQUIRE") == "all":
        pytest.fail(why)
    if why is not None:
        pytest.skip(why)


class PostgreSQL:
    """One server with its data in a folder of its own; the port stays over restarts."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.port = server.getsockname()[1]
        self._made = tempfile.TemporaryDirectory(prefix="pyroute-pg-")
        self.folder = Path(self._made.name)
        self.folder.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(self.folder, "postgres")
        words = ("-U", "pyroute", "-A", "trust", "-E", "UTF8", "--no-sync")
        self._call("initdb", *words)

    @property
    def url(self) -> str:
        return f"postgresql://pyroute@127.0.0.1:{self.port}/postgres"

    def _call(self, tool: str, *words: object) -> None:
        tools = binaries()
        assert tools is not None
        subprocess.run(
            [*as_user(), str(tools / tool), "-D", str(self.folder / "data"), *map(str, words)],
            check=True,
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            timeout=180,
        )

    def start(self) -> None:
        """Start it and wait until it answers."""
        options = f"-p {self.port} -c listen_addresses=127.0.0.1 -k {self.folder} -c fsync=off"
        log = self.folder / "log"
        self._call("pg_ctl", "-l", log, "-w", "-t", "120", "-o", options, "start")

    def kill(self) -> None:
        """At once, as a lost host does it; data stays."""
        if (self.folder / "data" / "postmaster.pid").exists():
            self._call("pg_ctl", "-m", "immediate", "-w", "stop")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()
        self._made.cleanup()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of an empty database."""
    require()
    with PostgreSQL() as server:
        yield server.url
