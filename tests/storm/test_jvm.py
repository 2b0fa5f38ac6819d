"""The JVM side of pyroute on a real Storm: vectors, one topology with every way to route, peers."""

import base64
import json
import random
import re
import subprocess
import zipfile
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pyroute as pr
from bench.storm import cluster, jars
from bench.storm import topology as t
from pyroute.control import ConfigStore

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "storm_router.json"
CHILDREN = jars.ROOT / "bench" / "storm" / "children"
ROUTER, ECHO = str(CHILDREN / "router.py"), str(CHILDREN / "echo.py")
pytestmark = pytest.mark.usefixtures("storm_jars")


def word(typed):
    """A typed value as Vectors.java reads it."""
    kind = typed["t"]
    if kind == "n":
        return "n"
    if kind == "o":
        return f"o{int(typed['v'])}"
    if kind == "i":
        return f"i{typed['v']}"
    data = typed["v"].encode() if kind == "s" else base64.b64decode(typed["v"])
    return kind + base64.b64encode(data).decode()


def ask(lines):
    """What the JVM answers."""
    command = ["java", "-cp", jars.class_path(local=True), "pyroute.storm.testing.Vectors"]
    text = "\n".join(lines) + "\n"
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    answers = done.stdout.splitlines()
    assert len(answers) == len(lines)
    return answers


def vector_line(vector):
    value = vector["value"]
    parts = value["v"] if value["t"] == "tuple" else [value]
    return " ".join(["K", str(vector.get("salt", 0)), *map(word, parts)])


def test_vectors_equal():
    lines, expected = [], []
    for case in json.loads(GOLDEN.read_text())["cases"]:
        for form in ("bytes", "nameless"):
            lines.append(f"R {case[form]}")
            expected.append(f"ok {case['version']}")
            lines += map(vector_line, case["vectors"])
            expected += [f"{v['id']} {v['task']}" for v in case["vectors"]]
    answers = ask(lines)
    wrong = [row for row in zip(lines, answers, expected, strict=True) if row[1] != row[2]]
    assert not wrong, wrong[:5]


def test_vectors_are_those_of_the_router():
    for case in json.loads(GOLDEN.read_text())["cases"]:
        router = pr.Router.from_bytes(base64.b64decode(case["bytes"]))
        for vector in case["vectors"]:
            value = pr._typed_json.decode(vector["value"])
            assert str(pr.keys([value]).ids[0]) == vector["id"]
            assert router.route([value], vector.get("salt"))[0] == vector["task"]


def test_random_routers_and_keys():
    rng = random.Random(7)
    lines, expected = [], []
    for _ in range(6):
        tasks = sorted(rng.sample(range(200), rng.randint(1, 40)))
        letters = "a\u00e9\u4e2d\U0001f600"
        words = ["".join(rng.choices(letters, k=rng.randint(0, 60))) for _ in range(400)]
        words = list(dict.fromkeys(words))
        table = {w: rng.choice(tasks) for w in words[: rng.randint(0, 200)]}
        router = pr.Router(pr.Ring(tasks, salt=rng.getrandbits(60)), table=table)
        lines.append("R " + base64.b64encode(router.to_bytes(values=False)).decode())
        expected.append("ok 0")
        numbers = [rng.randint(-(2**63), 2**63 - 1) for _ in range(400)]
        numbers += [rng.randint(-100, 100) for _ in range(100)]
        small = numbers[-100:]
        for values, write in (
            (words, lambda w: word({"t": "s", "v": w})),
            (numbers, lambda n: f"i{n}"),
            (small, lambda n: f"j{n}"),
            (small, lambda n: f"g{n}"),
        ):
            lines += [f"K 0 {write(value)}" for value in values]
            ids = pr.keys(values).ids
            expected += [f"{i} {k}" for i, k in zip(ids, router.route(values), strict=True)]
    assert ask(lines) == expected


def test_hostile_bytes():
    """Whatever is wrong with a router is an error, and never another router."""
    router = pr.Router(pr.Ring(4, bits=6), table={"a": 1, "b": 2}, splits={"c": [0, 1]})
    data = router.to_bytes()
    rng = np.random.default_rng(1)
    cut = range(7, len(data), 7)
    bad = [data[:n] for n in cut]
    for _ in range(200):
        flipped = bytearray(data)
        flipped[rng.integers(len(data))] ^= 1 << rng.integers(8)
        bad.append(bytes(flipped))
        # The same with a checksum that fits: every number is still checked.
        body = bytes(flipped[:-8])
        bad.append(body + int(pr.keys([body]).ids[0]).to_bytes(8, "little"))
    answers = ask([f"R {base64.b64encode(b).decode()}" for b in bad])
    for each, answer in zip(bad, answers, strict=True):
        try:
            good = pr.Router.from_bytes(each)
        except pr.FormatError:
            # C++ also checks that owners have the shares of the weights, and names their ids.
            assert answer.startswith(("error", "ok")), answer
        else:
            assert answer == f"ok {good.version}"
    assert sum(answer.startswith("error") for answer in answers) > len(bad) / 3
    assert all(a.startswith("error data:") for a in answers[: len(cut)])


def test_refused_keys():
    lines = ["R " + base64.b64encode(pr.Router(4).to_bytes()).decode()]
    answers = ask([*lines, "K 0 f1.5", f"K 0 g{2**63}"])
    assert "got java.lang.Double" in answers[1]
    assert "whole number of 64 bits" in answers[2]


def test_keyed_consumers_are_refused(tmp_path):
    """Whoever makes a RoutedGrouping says that two owners of a key do no harm."""
    good = base64.b64encode(pr.Router(4).to_bytes()).decode()
    bad = base64.b64encode(b"no router").decode()
    mergeable, keyed, without, damaged = ask(
        [
            f"G mergeable dir:{tmp_path} {good} word",
            f"G keyed dir:{tmp_path} {good} word",
            f"G mergeable dir:{tmp_path} {good}",
            f"G mergeable nowhere:x {bad} word",
        ]
    )
    assert mergeable == "ok | ok | ok"
    for made in keyed.split(" | "):
        assert made.startswith("error mergeable: expected true, because a changed table gives a")
        assert "state by key needs" in made
    for made in without.split(" | "):
        assert made.startswith("error fields: expected at least one")
    assert all(made.startswith("error") for made in damaged.split(" | ")), damaged


def test_a_router_bolt_says_what_is_missing_where_it_is_made():
    no_key, no_output, whole = probe("nokey", "nooutput", "whole")
    assert no_key == "error key: expected at least one field, got none"
    assert no_output == "error output: expected at least one field, got none"
    assert whole == "ok"


def test_ids_of_tasks_are_no_tuples():
    """A record waits for the tuple before it, and not for ids of tasks that go the same way."""
    assert probe("order") == ["false true"]


def probe(*looks):
    command = ["java", "-cp", jars.class_path(local=True), "pyroute.storm.Probe", *looks]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_jar_is_small_and_alone():
    """No class of Storm, no dependency: Storm is on every worker."""
    with zipfile.ZipFile(jars.pyroute()) as jar:
        names = [name for name in jar.namelist() if name.endswith(".class")]
    assert names
    assert all(name.startswith("pyroute/storm/") for name in names)
    assert jars.pyroute().stat().st_size < 200_000


def read(folder, name, tasks=4):
    """(task, sequence, class and text of the key, source) of what a counting component logged."""
    rows = []
    for task in range(tasks):
        path = folder / f"{name}-{task}"
        if path.exists():
            for line in path.read_text().splitlines():
                sequence, kind, key, source = line.split("\t")
                rows.append((task, int(sequence), kind, key, source))
    return rows


def value_of(kind, text):
    if kind == "null":
        return None
    if kind == "Boolean":
        return text == "true"
    return int(text) if kind in ("Integer", "Long") else text


def check(rows, records, router):
    """Every record once, at the task of its key."""
    assert sorted(row[1] for row in rows) == list(range(records))
    for task, _, kind, key, _ in rows:
        assert router.route_one(value_of(kind, key)) == task


@pytest.fixture(scope="module")
def mixed(tmp_path_factory):
    """One topology with a JSON bolt, RouterShellBolts, RoutedGroupings and a fields grouping."""
    folder = tmp_path_factory.mktemp("mixed")
    router = pr.Router(4, table={"key-1": 3, "key-2": 0, "key-3": 1}, version=5)
    mixed_router = pr.Router(4, table={7: 2})
    (folder / "router").write_bytes(router.to_bytes(values=False))
    (folder / "other").write_bytes(mixed_router.to_bytes(values=False))
    store = ConfigStore.open(f"dir:{folder / 'store'}")
    store.put("mixed/spout->stored", router.to_bytes(), 0)
    store.close()
    out = folder / "out"
    out.mkdir()
    records = 3000
    description = t.topology(
        "mixed",
        t.spout(records=records, keys=60, padding=30),
        t.spout("odd", records=records, keys=60, type="mixed"),
        t.python("json", t.by("shuffle", "spout"),
                 script=[ROUTER, str(folder / "router"), "json_count"]),
        t.python("frames", t.by("shuffle", "spout"), kind="router", parallelism=2, tick=1,
                 script=[ROUTER, str(folder / "router"), "frames_count"]),
        t.python("types", t.by("shuffle", "odd"), kind="router",
                 script=[ROUTER, str(folder / "other"), "types_count"]),
        t.python("stormpy", t.by("shuffle", "spout"), script=["split.py"], direct=False,
                 resources=True, environment={"PYTHONPATH": ""}),
        t.python("echo", t.by("shuffle", "spout"), script=[ECHO], direct=False, tick=1),
        t.count("stormpy_count", t.routed("stormpy", f"file:{folder / 'router'}"),
                folder=str(out)),
        t.count("echo_count", t.routed("echo", f"file:{folder / 'router'}"), folder=str(out)),
        t.count("json_count", t.by("direct", "json"), folder=str(out)),
        t.count("frames_count", t.by("direct", "frames"), folder=str(out)),
        t.count("types_count", t.by("direct", "types"), folder=str(out)),
        t.count("file_count", t.routed("spout", f"file:{folder / 'router'}"), folder=str(out)),
        t.count("store_count", t.routed("spout", f"dir:{folder / 'store'}", "mixed/spout->stored"),
                folder=str(out)),
        t.count("odd_count", t.routed("odd", f"file:{folder / 'other'}"), folder=str(out)),
        t.count("fields_count", t.by("fields", "spout", fields=["key"]), folder=str(out)),
        until={"spout.acked": records, "odd.acked": records},
        deadline=150,
    )  # fmt: skip
    [result] = cluster.local(description)
    assert "late" not in result, result
    return out, records, router, mixed_router, result


@pytest.mark.parametrize(
    "name",
    ["json_count", "frames_count", "file_count", "store_count", "stormpy_count", "echo_count"],
)
def test_mixed_exact(mixed, name):
    out, records, router, _, result = mixed
    check(read(out, name), records, router)
    assert result["counters"][name] == records
    assert result["counters"]["spout.failed"] == 0


def test_types_survive(mixed):
    """A RouterShellBolt changes no type; JSON would make Integer of every Long."""
    out, records, _, router, _ = mixed
    rows = read(out, "types_count")
    check(rows, records, router)
    kinds = Counter(row[2] for row in rows)
    assert set(kinds) == {"String", "Long", "Integer", "Boolean", "null"}
    assert Counter((row[1], row[2], row[3]) for row in rows) == Counter(
        (row[1], row[2], row[3]) for row in read(out, "odd_count")
    )


def test_grouping_of_every_type(mixed):
    out, records, _, router, _ = mixed
    check(read(out, "odd_count"), records, router)


def test_fields_grouping_is_storm_hash(mixed):
    """What our StormHash says is what Storm did."""
    out, records, _, _, _ = mixed
    rows = read(out, "fields_count")
    assert len(rows) == records
    homes = pr.StormHash(4, key_type="string").homes([row[3] for row in rows])
    assert homes.tolist() == [row[0] for row in rows]


DOCS = (jars.ROOT / "docs" / "storm.md").read_text()
JAVA = """
import org.apache.storm.task.*;
import org.apache.storm.topology.*;
import org.apache.storm.topology.base.BaseRichBolt;
import org.apache.storm.tuple.Tuple;
import pyroute.storm.*;

class Docs {
    static class CountBolt extends BaseRichBolt {
        public void prepare(
                java.util.Map<String, Object> conf, TopologyContext context, OutputCollector to) {}

        public void execute(Tuple tuple) {}

        public void declareOutputFields(OutputFieldsDeclarer declarer) {}
    }

    void make(TopologyBuilder builder) {
        BLOCK
    }
}
"""


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", DOCS, re.DOTALL)


def test_docs_java_compiles(tmp_path):
    found = blocks("java")
    assert len(found) == 2
    for number, block in enumerate(found):
        folder = tmp_path / str(number)
        folder.mkdir()
        (folder / "Docs.java").write_text(JAVA.replace("BLOCK", block))
        options = ["-cp", jars.class_path(local=True), "-d", str(folder)]
        done = subprocess.run(
            ["javac", *options, str(folder / "Docs.java")], capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr


def test_docs_python_runs():
    found = blocks("python")
    assert len(found) == 2
    for block in found:
        exec(compile(block, "docs/storm.md", "exec"), {"__name__": "docs"})
