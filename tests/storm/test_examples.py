"""examples/storm: the Flux file says what the bolts need, and its commands run."""

import json
import random
import sys
from collections import Counter
from pathlib import Path

import pytest

from pyroute.storm.state import read_state

from .jvm import Jvm
from .pipes import Cluster, Component

EXAMPLES = Path(__file__).parents[2] / "examples" / "storm"


@pytest.fixture
def flux():
    yaml = pytest.importorskip("yaml")
    return yaml.safe_load((EXAMPLES / "wordcount.yaml").read_text())


def command(words):
    return [
        sys.executable
        if word == "python3"
        else str(EXAMPLES / word)
        if word[-3:] == ".py"
        else word
        for word in words
    ]


def components(flux):
    """The bolts as the Flux file has them."""
    found = {}
    for bolt in flux["bolts"]:
        words, fields = bolt["constructorArgs"]
        streams = {"default": fields}
        for method in bolt.get("configMethods", ()):
            assert method["name"] == "setNamedStream"
            name, named = method["args"]
            streams[name] = named
        reads = []
        for stream in flux["streams"]:
            if stream["to"] == bolt["id"]:
                source = "spout" if stream["from"] == "words" else stream["from"]
                grouping = stream["grouping"]
                name = grouping.get("streamId", "default")
                reads.append((source, name, grouping["type"].lower()))
        found[bolt["id"]] = Component(command(words), bolt["parallelism"], reads, streams)
    return found


def test_runs_as_written(tmp_path, flux):
    """Every command of the file, on pipes; the words are counted exactly."""
    conf = {
        **flux["config"],
        "topology.name": flux["name"],
        "pyroute.state": str(tmp_path / "state"),
        "pyroute.store": f"dir:{tmp_path / 'store'}",
    }
    rng = random.Random(0)
    records = [f"word{rng.randrange(50)}" for _ in range(6000)]
    rows = [[json.dumps(["s", i]), word, "LOW"] for i, word in enumerate(records)]
    (spout,) = flux["spouts"]
    fields = spout["constructorArgs"][1]
    with Cluster(tmp_path / "c", components(flux), rows, fields, conf=conf) as cluster:
        cluster.timeout = 60.0
        cluster.run(lambda: cluster.done)
        assert not cluster.errors
        assert cluster.deaths == 0
    counts = Counter()
    for number in range(4):
        counts.update(read_state(tmp_path / "state" / "count" / str(number)))
    assert counts == Counter(records)


def test_every_stream_is_declared(flux):
    parts = components(flux)
    for name, part in parts.items():
        for source, stream, grouping in part.reads:
            if source != "spout":
                assert stream in parts[source].streams, (name, source, stream)
                assert grouping == "direct"


def test_the_spout(tmp_path, flux):
    """Counts its ids up, sends again what fails, and says how far it is."""
    script = (EXAMPLES / "words.py").read_text()
    with Jvm(script, tmp_path) as spout:
        spout.say({"command": "next"})
        first = spout.hear_until(lambda m: m["command"] == "sync")[:-1]
        numbers = [json.loads(m["tuple"][0])[1] for m in first if m["command"] == "emit"]
        assert numbers == list(range(len(numbers)))
        assert len(numbers) > 5
        for number in (0, 1, 3):
            spout.say({"command": "ack", "id": number})
            spout.hear_until(lambda m: m["command"] == "sync")
        spout.say({"command": "fail", "id": 2})
        again = spout.hear_until(lambda m: m["command"] == "sync")[0]
        assert json.loads(again["tuple"][0])[1] == 2
        assert again["tuple"][2] == 2  # the least that is not acked
        assert json.dumps(again["tuple"][1]) == json.dumps(first[2]["tuple"][1])
