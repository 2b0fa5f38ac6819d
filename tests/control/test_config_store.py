"""The config store: two layouts, one contract."""

import json
import logging
import os
import random
import struct
import subprocess
import sys
import threading
import time
import zlib
from pathlib import Path

import pytest

import pyroute as pr
from pyroute.control import ConfigStore, Document, MalformedError, StaleVersionError
from pyroute.control._envelope import encoded_name, plain_name
from zookeeper import zookeeper  # noqa: F401 - a fixture

WORK = Path(__file__).parent / "config_store_worker.py"


def until(true, seconds=60.0):
    """Wait for something; a loaded machine may take its time."""
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)


@pytest.fixture(params=["dir", "zk"])
def url(request, tmp_path):
    if request.param == "dir":
        return f"dir:{tmp_path / 'store'}"
    server = request.getfixturevalue("zookeeper")
    return f"zk://{server.hosts}/{tmp_path.name}/store"


@pytest.fixture
def store(url):
    with ConfigStore.open(url) as opened:
        yield opened


# reading and writing --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value",
    [
        {"ratio": [7, 3, 2], "text": "größe \u2028", "none": None, "big": 2**60 + 1},
        [],
        "text",
        0,
        b"",
        b"\x00\xffbytes",
        pr.Router(5, {"anna": 1}).to_bytes(),
    ],
)
def test_there_and_back(store, value):
    assert store.get("a/b") is None
    assert store.put("a/b", value, 0) == 1
    assert store.get("a/b") == Document(1, value)


def test_versions_count_from_one(store):
    for version in range(30):
        assert store.put("ratio", [version], version) == version + 1
    assert store.get("ratio") == Document(30, [29])
    assert store.names() == ["ratio"]


def test_stale_refused(store):
    store.put("ratio", 1, 0)
    store.put("ratio", 2, 1)
    for expect in (0, 1, 3):
        with pytest.raises(StaleVersionError, match=f"expected 2, got {expect}") as caught:
            store.put("ratio", 3, expect)
        assert (caught.value.expected, caught.value.got) == (2, expect)
    assert store.get("ratio") == Document(2, 2)
    assert store.put("ratio", 4, None) == 3


def test_update(store):
    assert store.update("n", lambda old: (old or 0) + 1) == Document(1, 1)
    assert store.update("n", lambda old: (old or 0) + 1) == Document(2, 2)


@pytest.mark.parametrize("name", ["a", "top/edge->b", "größe", "..", ".hidden", "a%2Fb", " ", "%"])
def test_names(store, name):
    store.put(name, 1, 0)
    assert store.names() == [name]
    assert plain_name(encoded_name(name)) == name
    store.remove(name)
    store.remove(name)
    assert store.names() == []
    assert store.get(name) is None


def test_bad_input(store, tmp_path):
    for name, error in [("", ValueError), ("x" * 201, ValueError), ("\ud800", ValueError)]:
        with pytest.raises(error, match="name: expected"):
            store.put(name, 1, 0)
    with pytest.raises(TypeError, match="name: expected text, got int"):
        store.get(3)
    with pytest.raises(ValueError, match="value: expected bytes or JSON"):
        store.put("a", float("nan"), 0)
    with pytest.raises(TypeError, match="value: expected bytes or JSON"):
        store.put("a", object(), 0)
    with pytest.raises(ValueError, match="expect_version: expected 0 to"):
        store.put("a", 1, -1)
    with pytest.raises(TypeError, match="expect_version: expected an int"):
        store.put("a", 1, "1")
    assert store.names() == []
    for bad in ("", "file:/x", "dir:", "zk://", "zk:///a", "zk://host:1/a//b"):
        with pytest.raises(ValueError, match="url: expected"):
            ConfigStore.open(bad)
    with pytest.raises(TypeError, match="url: expected text"):
        ConfigStore.open(tmp_path)


def test_large(store):
    """Beyond what a ZooKeeper node holds, in chunks; old chunks go."""
    rng = random.Random(0)
    for version in range(4):
        value = rng.randbytes(1_300_000)
        assert store.put("table", value, version) == version + 1
        assert store.get("table").value == value
    assert store.put("table", b"small again", 4) == 5
    assert store.get("table") == Document(5, b"small again")
    if hasattr(store, "_client"):
        left = store._client.get_children(f"{store.path}/.chunks/table")
        assert len(left) <= 1, left
        assert store.names() == ["table"]


def test_compressed(store):
    """A circle of owners is repetitive: it is kept small."""
    value = {"owners": [0, 1, 2, 3] * 50_000}
    store.put("ring", value, 0)
    assert store.get("ring").value == value
    assert len(stored(store, "ring")) < 10_000


# watching -------------------------------------------------------------------------------------


def test_watch_level_triggered(store, url):
    """The last is always seen; versions only go up; none comes twice."""
    store.put("ratio", 0, 0)
    seen = []
    with ConfigStore.open(url) as other:
        watch = other.watch("ratio", seen.append)
        until(lambda: seen)
        for version in range(1, 60):
            store.put("ratio", version, version)
        until(lambda: seen[-1] == Document(60, 59))
        versions = [document.version for document in seen]
        assert versions == sorted(set(versions))
        assert all(document.value == document.version - 1 for document in seen)
        assert watch.document == seen[-1]
        assert watch.problem is None


def test_watch_before_there_is_one(store):
    seen = []
    store.watch("later", seen.append)
    store.put("later", "now", 0)
    until(lambda: seen == [Document(1, "now")])


def test_watch_cancelled(store):
    seen, others = [], []
    watch = store.watch("a", seen.append)
    store.watch("a", others.append)
    store.put("a", 1, 0)
    until(lambda: seen and others)
    watch.cancel()
    watch.cancel()
    store.put("a", 2, 1)
    until(lambda: len(others) == 2)
    assert seen == [Document(1, 1)]


def test_watch_from_a_callback(store):
    """A callback may write, cancel and close."""
    seen = []

    def callback(document):
        seen.append(document.value)
        if document.value < 3:
            store.put("a", document.value + 1, document.version)
        else:
            watch.cancel()
            store.close()

    store.put("a", 1, 0)
    watch = store.watch("a", callback)
    until(lambda: seen == [1, 2, 3])


def test_callback_raises(store, caplog):
    """Logged; the next version comes all the same, the failed one does not come again."""
    seen = []

    def callback(document):
        seen.append(document.version)
        if document.version == 1:
            raise RuntimeError("mine")

    with caplog.at_level(logging.ERROR, "pyroute"):
        watch = store.watch("a", callback)
        store.put("a", 1, 0)
        until(lambda: watch.problem)
        assert "RuntimeError('mine')" in watch.problem
        store.put("a", 2, 1)
        until(lambda: seen == [1, 2])
    assert "the callback failed on version 1" in caplog.text


def test_close(store):
    store.watch("a", print)
    store.close()
    store.close()
    with pytest.raises(ValueError, match="expected an open one"):
        store.watch("a", print)


def test_watch_without_watchfiles(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "watchfiles", None)
    seen = []
    with ConfigStore.open(f"dir:{tmp_path}", poll=0.01) as store:
        store.watch("a", seen.append)
        for version in range(20):
            store.put("a", version, version)
        until(lambda: seen and seen[-1].version == 20)


# malformed ------------------------------------------------------------------------------------


def stored(store, name):
    """The bytes in the file or the node."""
    if hasattr(store, "_client"):
        return store._client.get(f"{store.path}/{encoded_name(name)}")[0]
    return max((store.path / encoded_name(name)).glob("[0-9]*")).read_bytes()


def damage(store, name, data):
    """Write any bytes as the next version, past the store."""
    if hasattr(store, "_client"):
        store._client.set(f"{store.path}/{encoded_name(name)}", data)
        return
    newest = max((store.path / encoded_name(name)).glob("[0-9]*"))
    path = newest.with_name(f"{int(newest.name) + 1:020d}")
    temporary = path.with_name(".other")
    temporary.write_bytes(data)
    temporary.rename(path)


def test_malformed_is_reported_and_the_last_good_stays(store, caplog):
    store.put("a", {"good": 1}, 0)
    good = stored(store, "a")
    seen = []
    watch = store.watch("a", seen.append)
    until(lambda: seen)
    with caplog.at_level(logging.WARNING, "pyroute"):
        damage(store, "a", b"not an envelope")
        until(lambda: watch.problem)
        with pytest.raises(MalformedError, match="version 2: document: expected an envelope") as e:
            store.get("a")
        assert e.value.version == 2
        assert watch.document == Document(1, {"good": 1})
        assert "version 1 stays in force" in caplog.text
        damage(store, "a", good)  # an old version, copied back
        until(lambda: "got a copy of 1" in (watch.problem or ""))
        assert store.put("a", {"good": 2}, 3) == 4
        until(lambda: len(seen) == 2)
    assert seen == [Document(1, {"good": 1}), Document(4, {"good": 2})]
    assert watch.problem is None


def test_hostile(store):
    """Whatever is changed in it, it is read or refused."""
    store.put("a", {"x": list(range(100))}, 0)
    good = stored(store, "a")
    rng = random.Random(1)
    for _ in range(60):
        data = bytearray(good)
        for _ in range(rng.randint(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = bytes(data[: rng.choice((len(data), rng.randrange(len(data))))])
        damage(store, "a", data)
        with pytest.raises(MalformedError):
            store.get("a")


def test_bomb(store):
    """A length that does not fit is refused before it takes the memory."""
    packed = zlib.compress(bytes(50_000_000))
    head = struct.pack(">4sBBBBQQ", b"PYCF", 1, 0, 1, 0, 2, 10)
    store.put("a", 1, 0)
    damage(store, "a", head + bytes(24) + packed)
    with pytest.raises(MalformedError, match="expected 10 bytes"):
        store.get("a")


def test_layout(tmp_path):
    """What docs/config-store.md says, by hand: other languages read it like this."""
    with ConfigStore.open(f"dir:{tmp_path}") as store:
        store.put("word count/split->count", {"ratio": [7, 3, 2]}, 0)
        store.put("word count/split->count", {"ratio": [1] * 1000}, 1)
    folder = tmp_path / "word%20count%2Fsplit-%3Ecount"
    newest = max(p.name for p in folder.iterdir() if len(p.name) == 20 and p.name.isdigit())
    assert newest == "00000000000000000002"
    data = (folder / newest).read_bytes()
    magic, form, kind, codec, zero = data[:4], *data[4:8]
    version = int.from_bytes(data[8:16], "big")
    length = int.from_bytes(data[16:24], "big")
    checksum = int.from_bytes(data[24:28], "big")
    chunks = int.from_bytes(data[28:32], "big")
    plain = zlib.decompress(data[48:]) if codec else data[48:]
    assert (magic, form, kind, codec, zero, version, chunks) == (b"PYCF", 1, 1, 1, 0, 2, 0)
    assert len(plain) == length
    assert zlib.crc32(data[:24] + plain) == checksum
    assert json.loads(plain) == {"ratio": [1] * 1000}


# several processes ----------------------------------------------------------------------------


def worker(*arguments):
    return subprocess.Popen(
        [sys.executable, str(WORK), *map(str, arguments)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )


def test_race(store, url):
    """Processes that add to one list by compare-and-set: every addition is there, once."""
    writers = [worker("add", url, name, 40) for name in "abc"]
    seen = []
    store.watch("list", lambda document: seen.append((document.version, list(document.value))))
    for process in writers:
        process.communicate(timeout=120)
        assert process.returncode == 0
    end = store.get("list")
    assert end.version == 120
    assert sorted(end.value) == sorted(f"{name}{i}" for name in "abc" for i in range(40))
    until(lambda: seen[-1][0] == 120)
    for version, value in seen:
        assert value == end.value[:version]
    assert [v for v, _ in seen] == sorted({v for v, _ in seen})


def test_one_winner(store, url):
    """Of many that put the same version, one is told that it did."""
    writers = [worker("claim", url, name, 30) for name in "abcd"]
    won = [process.communicate(timeout=120)[0].split() for process in writers]
    claimed = [int(version) for lines in won for version in lines]
    assert sorted(claimed) == list(range(1, 31))


def test_killed_writer(url, store):
    """kill -9 at any moment leaves a whole document and lets others write."""
    rng = random.Random(3)
    for _ in range(4):
        process = worker("add", url, "k", 10_000)
        before = 0 if (now := store.get("list")) is None else now.version
        until(lambda b=before: (d := store.get("list")) is not None and d.version > b + 2)
        time.sleep(rng.random() * 0.05)
        process.kill()
        process.communicate()
        now = store.get("list")
        assert len(now.value) == now.version
    count = len(now.value)
    assert store.update("list", lambda old: [*old, "end"]).version == count + 1


# ZooKeeper ------------------------------------------------------------------------------------


@pytest.fixture
def keeper(zookeeper, tmp_path):  # noqa: F811
    """A store on a server that the test may kill."""
    yield zookeeper, f"zk://{zookeeper.hosts}/{tmp_path.name}"
    if zookeeper.process is None:
        zookeeper.start()


def test_server_killed_and_restarted(keeper):
    server, url = keeper
    seen = []
    with ConfigStore.open(url, session=2.0, timeout=1.0) as store:
        store.put("a", 1, 0)
        watch = store.watch("a", seen.append)
        until(lambda: seen)
        server.kill()
        until(lambda: watch.problem is not None)
        assert watch.document == Document(1, 1)
        with pytest.raises(ConnectionError, match="expected an answer of ZooKeeper"):
            store.put("a", 2, 1)
        server.start()
        with ConfigStore.open(url) as other:
            assert other.put("a", 2, None) >= 2
            last = other.put("a", 3, None)
        until(lambda: seen[-1].version == last)
        assert [d.version for d in seen] == sorted({d.version for d in seen})
        assert store.get("a").value == 3
        until(lambda: watch.problem is None)


def test_started_before_the_server(keeper):
    server, url = keeper
    server.kill()
    with pytest.raises(ConnectionError, match="got no answer"):
        ConfigStore.open(url, timeout=0.3)
    seen = []
    with ConfigStore.open(url, wait=False, timeout=30.0) as store:
        store.watch("a", seen.append)
        server.start()
        store.put("a", 1, 0)
        until(lambda: seen == [Document(1, 1)])


def test_session_expired(keeper):
    """Nothing is missed while a session ends, nothing comes twice afterwards."""
    server, url = keeper
    seen = []
    with ConfigStore.open(url) as store, ConfigStore.open(url) as writer:
        writer.put("a", 1, 0)
        store.watch("a", seen.append)
        until(lambda: seen)
        for version in range(1, 4):
            session = store._client.client_id[0]
            server.expire(store._client)
            writer.put("a", version + 1, version)
            until(lambda v=version: seen[-1].version == v + 1)
            until(lambda s=session: (store._client.client_id or [s])[0] != s)
            writer.put("b", version, None)
        assert [d.version for d in seen] == [1, 2, 3, 4]
        assert store.put("a", 5, 4) == 5
        until(lambda: seen[-1] == Document(5, 5))


def test_answer_lost(keeper, monkeypatch):
    """A write whose answer is lost is found again by its token, not taken for somebody else's."""
    _, url = keeper
    from kazoo.exceptions import ConnectionLoss

    with ConfigStore.open(url) as store:
        store.put("a", 1, 0)
        real, lost = store._calling.set, []

        def once(*arguments, **options):
            result = real(*arguments, **options)
            if not lost:
                lost.append(1)
                raise ConnectionLoss
            return result

        monkeypatch.setattr(store._calling, "set", once)
        assert store.put("a", 2, 1) == 2
        assert lost
        assert store.get("a") == Document(2, 2)


def test_chunk_missing(keeper):
    _, url = keeper
    with ConfigStore.open(url) as store:
        store.put("big", random.Random(0).randbytes(1_100_000), 0)
        below = f"{store.path}/.chunks/big"
        name = store._client.get_children(below)[0]
        assert len(store._client.get_children(f"{below}/{name}")) == 3
        store._client.delete(f"{below}/{name}/000001")
        with pytest.raises(MalformedError, match="version 1: chunks: expected all of them"):
            store.get("big")
        assert store.put("big", b"repaired", 1) == 2


def test_watch_threads_end(keeper):
    _, url = keeper
    before = threading.active_count()
    for _ in range(3):
        with ConfigStore.open(url) as store:
            store.watch("a", print)
    until(lambda: threading.active_count() <= before)


def test_missing_kazoo(monkeypatch):
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(ImportError, match="pip install 'pyroute-core\\[zookeeper\\]'"):
        ConfigStore.open("zk://127.0.0.1:1/a")
