"""Stable storage: whole or not there, one of many, and synced."""

import os
import threading

import pytest

from pyroute.protocol import FileStorage, MemoryStorage, MemoryStore, ProtocolError


@pytest.fixture(params=["memory", "files"])
def storage(request, tmp_path):
    return MemoryStorage() if request.param == "memory" else FileStorage(tmp_path / "a" / "b")


def test_created_once(storage):
    assert storage.read("1.x") is None
    assert storage.create("1.x", b"first")
    assert not storage.create("1.x", b"second")
    assert storage.read("1.x") == b"first"
    assert storage.create("0.x", b"")
    assert storage.names() == ["0.x", "1.x"]
    storage.remove("1.x")
    storage.remove("1.x")
    assert storage.names() == ["0.x"]
    assert storage.create("1.x", b"third")


def test_one_of_many(tmp_path):
    """Of several that create one name, one succeeds, with all of its own content."""
    for i in range(20):
        made = []
        go = threading.Barrier(4)

        def create(n, i=i, made=made, go=go):
            own = FileStorage(tmp_path)
            go.wait()
            if own.create(f"{i}", b"%d" % n * 1000):
                made.append(n)

        threads = [threading.Thread(target=create, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        [winner] = made
        assert FileStorage(tmp_path).read(f"{i}") == b"%d" % winner * 1000


def test_synced_before_seen(tmp_path, monkeypatch):
    """The file is on disk before it has its name, and the name before anybody is told."""
    calls = []
    real = {name: getattr(os, name) for name in ("fsync", "link")}

    def fsync(descriptor):
        is_folder = os.path.isdir(f"/proc/self/fd/{descriptor}")  # noqa: PTH112
        calls.append("sync folder" if is_folder else "sync file")
        real["fsync"](descriptor)

    def link(*arguments):
        calls.append("link")
        real["link"](*arguments)

    storage = FileStorage(tmp_path)
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "link", link)
    storage.create("1", b"x")
    assert calls == ["sync file", "link", "sync folder"]
    calls.clear()
    storage.replace("1", b"y")
    assert calls == ["sync file", "sync folder"]


def test_nothing_half_written(tmp_path, monkeypatch):
    storage = FileStorage(tmp_path)

    def full(descriptor):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        storage.create("1", b"x")
    assert storage.names() == []
    assert list(tmp_path.iterdir()) == []


def test_left_over_is_no_document(tmp_path):
    storage = FileStorage(tmp_path)
    storage.create("1", b"")
    (tmp_path / ".pyroute-tmp-dead").write_bytes(b"half")
    assert storage.names() == ["1"]
    storage.clean()
    assert [path.name for path in tmp_path.iterdir()] == ["1"]


@pytest.mark.parametrize("name", ["", "../x", "a/b", ".x", "A", "x..y"])
def test_names(tmp_path, name):
    with pytest.raises(ValueError, match="name: expected"):
        FileStorage(tmp_path).create(name, b"")


def test_memory_store():
    store = MemoryStore([(5, b"five")])
    assert list(store.keys(0, 4)) == []
    assert list(store.keys(5, 5)) == [5]
    with pytest.raises(ProtocolError, match="key: expected one without state here, got 5"):
        store.put(5, b"again")
    assert store.take(5) == b"five"
    assert store.take(5) is None
