"""A real cluster of processes: a child and a worker killed, every record counted once."""

import sys

import pytest

import pyroute as pr
from bench.storm import cluster, jars
from bench.storm import topology as t
from pyroute.control import ConfigStore
from pyroute.storm.state import read_state
from storm.test_jvm import ROUTER, read

RECORDS = 3000
pytestmark = pytest.mark.usefixtures("storm_jars")


@pytest.mark.parametrize("namespaces", [True, False])
def test_nothing_is_left(namespaces, monkeypatch, tmp_path):
    """Whatever runs inside ends with the host, also what the harness does not know."""
    if not namespaces:
        monkeypatch.setenv("PYROUTE_NAMESPACES", "0")
    elif not cluster.Namespace.possible():
        pytest.skip("namespaces are not allowed here")
    host = cluster.Namespace()
    host.start("sh", "-c", f"sleep 1000 & echo $! > {tmp_path / 'pid'}; wait")
    cluster.wait_for("pid", lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text())
    inside = [p for p in host.processes() if "1000" in cluster.command_of(p)]
    assert inside
    host.close()
    cluster.wait_for("the end", lambda: not any(cluster.command_of(p) for p in inside))


def test_kills(tmp_path):
    """kill -9 of a child, then of a worker: after replays all is there, at the task of its key."""
    router = pr.Router(4, table={"key-1": 3, "key-2": 0, "key-3": 1})
    store = ConfigStore.open(f"dir:{tmp_path / 'store'}")
    store.put("kills/spout->grouped", router.to_bytes(), 0)
    store.close()
    (tmp_path / "router").write_bytes(router.to_bytes())
    out = tmp_path / "out"
    out.mkdir()
    with cluster.Cluster() as storm, cluster.logged(storm):
        storm.submit(
            t.topology(
                "kills",
                t.spout(records=RECORDS, keys=60, rate=300, folder=str(out)),
                t.python(
                    "router",
                    t.by("shuffle", "spout"),
                    kind="router",
                    parallelism=2,
                    script=[ROUTER, str(tmp_path / "router"), "count"],
                ),
                t.python(
                    "json",
                    t.by("shuffle", "spout"),
                    script=[ROUTER, str(tmp_path / "router"), "plain"],
                ),
                t.count("count", t.by("direct", "router"), folder=str(out)),
                t.count("plain", t.by("direct", "json"), folder=str(out)),
                t.count(
                    "grouped",
                    t.routed("spout", f"dir:{tmp_path / 'store'}", "kills/spout->grouped"),
                    folder=str(out),
                ),
                conf={"topology.workers": 2, "topology.message.timeout.secs": 10},
            )
        )
        cluster.wait_for("records", lambda: read(out, "count"))
        cluster.wait_for("three children", lambda: len(storm.children("router.py")) == 3)
        assert len(storm.workers()) == 2
        before = set(storm.workers())
        child, worker = next(iter(storm.children("router.py").items()))
        storm.kill(child)
        # A dead child takes its worker down, and the supervisor starts another.
        cluster.wait_for("its worker to end", lambda: worker not in storm.workers())
        cluster.wait_for("a new worker", lambda: len(storm.children("router.py")) == 3)
        survivor = next(iter(before - {worker}))
        storm.kill(survivor)
        cluster.wait_for("its end", lambda: survivor not in storm.workers())
        state = out / "spout-0"
        cluster.wait_for("all acks", lambda: state.read_text().split()[1] == "done", 240.0)
        everything = storm.processes()
    for name in ("count", "plain", "grouped"):
        rows = read(out, name)
        places: dict[int, set[int]] = {}
        for task, sequence, _, key, _ in rows:
            places.setdefault(sequence, set()).add(task)
            assert router.route_one(key) == task
        assert sorted(places) == list(range(RECORDS))
        assert all(len(tasks) == 1 for tasks in places.values())
    assert not [pid for pid in everything if cluster.command_of(pid)]
    assert not storm.folder.exists()


def test_the_example_runs_by_flux(tmp_path):
    """examples/storm/wordcount.yaml by Storm's own Flux: words are counted, plans are made."""
    text = (jars.ROOT / "examples" / "storm" / "wordcount.yaml").read_text()
    assert text.count('"/var/lib/pyroute/wordcount"') == text.count("dir:/var/lib/pyroute") == 1
    text = text.replace("/var/lib/pyroute", str(tmp_path)).replace(
        '"python3"', f'"{sys.executable}"'
    )
    file = tmp_path / "wordcount.yaml"
    file.write_text(text.replace('"--plan-every", "20"', '"--plan-every", "2"'))
    flux = ("org.apache.storm.flux.Flux", "--remote", str(file))
    store = ConfigStore.open(f"dir:{tmp_path / 'store'}")

    def status():
        found = store.get("wordcount/status")
        return {} if found is None else found.value

    with cluster.Cluster() as storm, cluster.logged(storm):
        jar = jars.example()
        storm.run(storm.java(*flux, options=[f"-Dstorm.jar={jar}"], jar=jar))
        cluster.wait_for("a plan in force", lambda: status().get("epoch", 0) >= 1)
        storm.kill_topology("wordcount")
        cluster.wait_for("the end of its workers", lambda: not storm.workers())
    counts = [read_state(tmp_path / "wordcount" / "count" / str(i)) for i in range(4)]
    assert all(counts)
    assert len({word for one in counts for word, count in one.items() if count}) > 100
    store.close()
