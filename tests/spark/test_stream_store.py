"""Store and log: durable files, one winner per commit, a chain of manifests, clean-up."""

import dataclasses
import errno
import hashlib
import json
import multiprocessing
import os
import resource
import shutil
import signal
import stat
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pyroute as pr
from spark_udf.stream import store as stores
from spark_udf.stream.files import LevelFile, TaskFiles
from spark_udf.stream.manifest import FencedError, Job, Log, Manifest, Reference, RouterFile
from spark_udf.stream.schema import StateSchema
from spark_udf.stream.state import open_state
from spark_udf.stream.store import AlreadyCommitted, LocalStore, Store

SCHEMA = StateSchema(pa.schema([("k", pa.string())]), pa.schema([("n", pa.int64())]))
ROUTER = RouterFile("routers/0", 0, 2**64 - 1)


def refuse_links(*_args, **_options):
    raise OSError(errno.EPERM, os.strerror(errno.EPERM))


@pytest.fixture
def store(tmp_path):
    return LocalStore(tmp_path / "deep" / "down")


@pytest.fixture(params=[True, False], ids=["links", "no_links"])
def links(request, monkeypatch):
    """Both ways to commit."""
    if not request.param:
        monkeypatch.setattr(os, "link", refuse_links)
    return request.param


def everything(store):
    """Return all paths below a store that are no plain directories on the way to a file."""
    return sorted(
        path.relative_to(store.path).as_posix()
        for path in store.path.rglob("*")
        if not path.is_dir() or not any(path.iterdir())
    )


# Files


@pytest.mark.parametrize("mapped", [True, False])
def test_write_read(tmp_path, mapped):
    store: Store = LocalStore(tmp_path, memory_map=mapped)
    assert store.write("a/b.x", b"hello") == 5
    assert store.write("a/c.x", [b"he", pa.py_buffer(b"llo"), b""]) == 5
    assert store.write("empty", pa.py_buffer(b"")) == 0
    assert store.read("a/b.x").to_pybytes() == store.read("a/c.x").to_pybytes() == b"hello"
    assert store.read("empty").to_pybytes() == b""
    assert store.list("") == ["a/b.x", "a/c.x", "empty"]
    assert store.list("a/") == ["a/b.x", "a/c.x"]
    assert store.list("a/c") == ["a/c.x"]
    assert store.list("none/") == store.list("a/b.x/") == []
    assert abs(store.modified("a/b.x") - time.time()) < 60
    with pytest.raises(FileExistsError):
        store.write("a/b.x", b"other")
    assert store.read("a/b.x").to_pybytes() == b"hello"
    store.delete("a/b.x", "a/none", "none/none")
    with pytest.raises(FileNotFoundError):
        store.read("a/b.x")
    with pytest.raises(FileNotFoundError):
        store.modified("a/b.x")


def test_mapped_file_survives_deletion(store):
    store.write("x", b"y" * 100_000)
    buffer = store.read("x")
    store.delete("x")
    assert buffer.to_pybytes() == b"y" * 100_000


@pytest.mark.parametrize(
    "name", ["", "/x", "a//b", "../x", "a/./b", "a/", ".pyroute-tmp-1", "a/.."]
)
def test_bad_names(store, name):
    with pytest.raises(ValueError, match=r"name: expected a relative path of plain parts, got"):
        store.write(name, b"")


def test_same_place(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert LocalStore("a").url == LocalStore(tmp_path / "a").url
    assert LocalStore("a").url != LocalStore("b").url


@pytest.mark.parametrize("way", [str, Path.as_uri, lambda path: f"file:{path}"])
def test_url_of_a_directory(tmp_path, way):
    there = tmp_path / "a b"
    LocalStore(way(there)).write("x", b"1")
    assert (there / "x").read_bytes() == b"1"


@pytest.mark.parametrize(
    "url", ["s3a://bucket/x", "hdfs:///x", "dbfs:/x", Path("s3a://bucket/x"), "file://host/x"]
)
def test_url_of_another_place(tmp_path, monkeypatch, url):
    """As a path it would be a directory of this host, which no other one sees."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="directory: expected a path or a file:// URL on a file"):
        LocalStore(url)
    assert not list(tmp_path.iterdir())


def test_flushed_before_it_counts(store, monkeypatch, links):
    """The file and its directory reach the disk before a name is given, and the name after."""
    store.write("first", b"")  # makes the directory
    acts = []
    sync, link, rename = os.fsync, os.link, Path.rename

    def fsync(file):
        acts.append("directory" if stat.S_ISDIR(os.fstat(file).st_mode) else "file")
        sync(file)

    monkeypatch.setattr(os, "fsync", fsync)
    if links:
        monkeypatch.setattr(os, "link", lambda *a: acts.append("name") or link(*a))
    monkeypatch.setattr(Path, "rename", lambda *a: acts.append("name") or rename(*a))
    store.create_if_absent("x", b"document")
    if links:
        assert acts == ["file", "name", "directory"]
    else:
        assert acts[-4:] == ["file", "directory", "name", "directory"]
    acts.clear()
    store.write("y", b"data")
    assert acts == ["file", "directory"]


# Create if absent


@pytest.mark.usefixtures("links")
def test_create_if_absent(store):
    store.create_if_absent("m/1.json", [b"on", b"e"])
    with pytest.raises(AlreadyCommitted) as caught:
        store.create_if_absent("m/1.json", b"two")
    assert isinstance(caught.value, FileExistsError)
    assert caught.value.filename == "m/1.json"
    assert store.read("m/1.json").to_pybytes() == b"one"
    assert store.list("m/") == store.list("m/1") == ["m/1.json"]
    assert abs(store.modified("m/1.json") - time.time()) < 60
    assert len(everything(store)) == 1
    store.delete("m/1.json")
    assert store.list("") == []
    store.create_if_absent("m/1.json", b"three")
    assert store.read("m/1.json").to_pybytes() == b"three"


@pytest.mark.parametrize("first", [True, False])
def test_one_winner_of_both_ways(store, monkeypatch, first):
    link = os.link
    for document, linked in ((b"one", first), (b"two", not first)):
        monkeypatch.setattr(os, "link", link if linked else refuse_links)
        if document == b"one":
            store.create_if_absent("x", document)
        else:
            with pytest.raises(AlreadyCommitted):
                store.create_if_absent("x", document)
    assert store.read("x").to_pybytes() == b"one"
    assert len(everything(store)) == 1


@pytest.mark.parametrize("code", ["EPERM", "ENOTSUP", "EOPNOTSUPP", "EMLINK", "ENOSYS", "EACCES"])
def test_ways_to_have_no_links(store, monkeypatch, code):
    def link(*_args):
        raise OSError(getattr(errno, code), "no links")

    monkeypatch.setattr(os, "link", link)
    store.create_if_absent("x", b"document")
    assert store.read("x").to_pybytes() == b"document"


def test_other_errors_of_link_surface(store, monkeypatch):
    def link(*_args):
        raise OSError(errno.EIO, "the disk is ill")

    monkeypatch.setattr(os, "link", link)
    with pytest.raises(OSError, match="expected 8 bytes written, got the disk is ill: 'x'"):
        store.create_if_absent("x", b"document")
    assert everything(store) == []


def test_lost_answer(store, monkeypatch):
    # A network file system repeats a link whose answer was lost, and says that it exists.
    link = os.link

    def twice(*args):
        link(*args)
        link(*args)

    monkeypatch.setattr(os, "link", twice)
    store.create_if_absent("x", b"document")
    assert store.read("x").to_pybytes() == b"document"
    with pytest.raises(AlreadyCommitted):
        store.create_if_absent("x", b"other")


NAMES = 15


def compete(path, me, linked, start, results):
    """Try to create every name with a document of one's own."""
    if not linked:
        os.link = refuse_links
    store = LocalStore(path)
    won = []
    start.wait()
    for i in range(NAMES):
        try:
            store.create_if_absent(f"manifests/{i}", bytes([me]) * 100_000)
            won.append(i)
        except AlreadyCommitted:
            pass
    results.put((me, won))


@pytest.mark.parametrize("linked", [(True,) * 3, (False,) * 3, (True, False, True)])
def test_race(tmp_path, linked):
    """Of several processes exactly one creates a name, and no reader sees a part of it."""
    context = multiprocessing.get_context("spawn")
    start, results = context.Barrier(len(linked) + 1), context.Queue()
    racers = [
        context.Process(target=compete, args=(tmp_path, me, one, start, results))
        for me, one in enumerate(linked)
    ]
    for racer in racers:
        racer.start()
    start.wait()
    store = LocalStore(tmp_path)
    seen = 0
    while any(racer.is_alive() for racer in racers):
        for name in store.list("manifests/"):
            data = store.read(name).to_pybytes()
            assert data == data[:1] * 100_000
            seen += 1
    won = [results.get(timeout=30) for _ in racers]
    for racer in racers:
        racer.join()
        assert racer.exitcode == 0
    assert sorted(i for _, names in won for i in names) == list(range(NAMES))
    for me, names in won:
        for i in names:
            assert store.read(f"manifests/{i}").to_pybytes() == bytes([me]) * 100_000
    assert seen
    assert len(everything(store)) == NAMES


@pytest.mark.parametrize("way", ["link", "rename"])
def test_killed_before_the_name(tmp_path, way):
    """A driver that dies in the commit leaves a temporary file, which goes by its age."""
    code = f"""
import os, pathlib, signal, sys
from spark_udf.stream.store import LocalStore
def die(*args):
    os.kill(os.getpid(), signal.SIGKILL)
def refuse(*args):
    raise PermissionError(1, "no links")
os.link = die if {way == "link"} else refuse
pathlib.Path.rename = die
LocalStore(sys.argv[1]).create_if_absent("manifests/1", b"document")
"""
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=False)
    assert done.returncode == -signal.SIGKILL
    store = LocalStore(tmp_path)
    assert store.list("") == []
    assert len(everything(store)) == 1
    now = time.time()
    assert store.clean(3600, now) == []
    (left,) = store.clean(3600, now + 3700)
    assert left.startswith("manifests/.pyroute-tmp-")
    assert everything(store) == ["manifests"]
    store.create_if_absent("manifests/1", b"document")


# Full disk


def state_with(text, files, store):
    opened = open_state(store, files, 0, schema=SCHEMA)
    opened.write(pa.table({"k": text, "n": range(len(text))}, schema=SCHEMA.rows))
    return opened


def manifest(sequence=0, previous=None, files=(), **fields):
    levels = tuple(LevelFile(name, 1, 10) for name in files)
    made = {
        "job": Job("counts", 2, SCHEMA),
        "query_id": "query",
        "sequence": sequence,
        "batch_id": sequence,
        "previous": previous,
        "tasks": {0: TaskFiles(levels, len(levels), 10)},
        "router": ROUTER,
        "next_router": ROUTER,
    }
    return Manifest(**made | fields)


def fail_with(monkeypatch, act, code):
    def fail(*_args):
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, act, fail)


@pytest.mark.parametrize("act", ["write", "fsync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_full_disk(store, monkeypatch, act, code):
    """The error says what was not written, nothing is left, and the last manifest is in force."""
    log = Log(store)
    files = {0: state_with(["a"], {}, store).flush(store, 0, 0)}
    log.commit(manifest(tasks=files))
    before = everything(store)
    opened = state_with(["b"], files, store)
    with monkeypatch.context() as patch:
        fail_with(patch, act, code)
        shape = rf"expected \d+ bytes written, got {os.strerror(code)}: 'state/00000/"
        with pytest.raises(OSError, match=shape) as caught:
            opened.flush(store, 1, 0)
        assert caught.value.errno == code
        following = manifest(1, log.last().reference, tasks=files)
        with pytest.raises(OSError, match=r"bytes written, got .*: 'manifests/000000000001.json'"):
            log.commit(following)
    assert everything(store) == before
    assert log.last().sequence == 0
    # There is room again: the same state, the same manifest.
    files = {0: opened.flush(store, 1, 1)}
    log.commit(dataclasses.replace(following, tasks=files))
    again = open_state(store, log.last().tasks, 0, schema=SCHEMA)
    assert len(again) == 2


def test_file_size_limit(store):
    """A real limit of the system, met in the middle of a file."""
    store.write("small", b"x")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, hard))
    try:
        for write in (store.write, store.create_if_absent):
            with pytest.raises(OSError, match="expected 300000 bytes written, got") as caught:
                write("large", b"x" * 300_000)
            assert caught.value.errno == errno.EFBIG
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert everything(store) == ["small"]


def test_small_file_system(tmp_path):
    """A real full disk, where one can be made."""
    tools = [shutil.which(tool) for tool in ("mount", "umount")]
    place = tmp_path / "small"
    place.mkdir()
    command = [str(tools[0]), "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(place)]
    if None in tools or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("no small file system can be mounted")
    try:
        store = LocalStore(place)
        log = Log(store)
        log.commit(manifest(files=["state/0"]))
        before = everything(store)
        for write in (store.write, store.create_if_absent):
            with pytest.raises(OSError, match="No space left") as caught:
                write("state/large", b"x" * 1_000_000)
            assert caught.value.errno == errno.ENOSPC
        big = manifest(1, log.last().reference, metrics={"text": ["x" * 1_000_000]})
        with pytest.raises(OSError, match="No space left"):
            log.commit(big)
        assert [path for path in everything(store) if path != "state"] == before
        assert log.last().sequence == 0
    finally:
        subprocess.run([str(tools[1]), str(place)], check=True)


# Manifests

numbers = st.integers(0, 2**53) | st.floats(allow_nan=False, allow_infinity=False)
names = st.text(max_size=8)
task_files = st.builds(
    TaskFiles,
    st.lists(
        st.builds(LevelFile, names, st.integers(0, 2**40), st.integers(0, 2**40)), max_size=3
    ).map(tuple),
    st.integers(0, 2**40),
    st.integers(0, 2**40),
)
routers = st.builds(RouterFile, names, st.integers(0, 2**40), st.integers(0, 2**64 - 1))
manifests = st.builds(
    Manifest,
    job=st.builds(Job, names, st.integers(0, 1000), st.just(SCHEMA)),
    query_id=names,
    sequence=st.integers(0, 10**12 - 1),
    batch_id=st.integers(0, 2**62),
    previous=st.none() | st.builds(Reference, names, names),
    tasks=st.dictionaries(st.integers(0, 2**31 - 1), task_files, max_size=3),
    router=routers,
    next_router=routers,
    stats=st.none() | names,
    outputs=st.lists(names, max_size=3).map(tuple),
    metrics=st.dictionaries(names, numbers | st.lists(numbers, max_size=3), max_size=3),
    offsets=st.none() | names,
)


@given(manifests)
def test_json(one):
    text = one.to_json()
    again = Manifest.from_json(text)
    assert again == Manifest.from_json(text.encode()) == one
    assert again.to_json() == text
    assert again.reference == one.reference
    assert json.loads(text)["format"] == "pyroute.manifest"


def document(**changes):
    """Return the document of a manifest with other fields, its checksum right."""
    found = json.loads(manifest(files=["state/1"]).to_json())
    del found["checksum"]
    found |= changes
    text = json.dumps(found, sort_keys=True, separators=(",", ":"))
    found["checksum"] = hashlib.sha256(text.encode()).hexdigest()
    return found


def test_unknown_fields_are_kept():
    plain = document()
    plain["tasks"]["0"]["levels"][0]["later"] = 1
    plain["tasks"]["0"]["later"] = [2]
    found = document(
        later={"x": 3},
        job=plain["job"] | {"later": 4},
        router=plain["router"] | {"later": 5},
        next_router=plain["next_router"] | {"later": 6},
        tasks=plain["tasks"],
    )
    # A later release may also write the document in another way.
    text = json.dumps(found, indent=2)
    one = Manifest.from_json(text)
    assert json.loads(one.to_json()) == found
    assert one.unknown == {"later": {"x": 3}}
    assert one.reference.sha256 == hashlib.sha256(text.encode()).hexdigest()
    following = dataclasses.replace(one, sequence=1, previous=one.reference)
    assert json.loads(following.to_json())["later"] == {"x": 3}
    assert following.reference.sha256 != one.reference.sha256


def test_newer_manifest():
    message = r"^format_version: expected <= 1, got 2: written by a newer release"
    with pytest.raises(pr.FormatError, match=message):
        Manifest.from_json(json.dumps(document(format_version=2)))


BAD = {
    "format": "other",
    "format_version": "1",
    "job": {"name": "x"},
    "query_id": 5,
    "sequence": -1,
    "batch_id": "x",
    "previous": {"name": "x"},
    "tasks": {"x": {}},
    "router": None,
    "next_router": {"name": "x", "version": 0, "fingerprint": str(2**64)},
    "stats": 5,
    "outputs": [5],
    "metrics": 5,
}


@pytest.mark.parametrize("field", BAD)
def test_bad_documents(field):
    with pytest.raises(pr.FormatError, match=r".+: expected .+, got .+"):
        Manifest.from_json(json.dumps(document(**{field: BAD[field]})))


def test_bad_job():
    job = document()["job"]
    for wrong in (
        {"schema": "AAAA"},
        {"schema": "*"},
        {"keys": [{"name": "k", "type": "int64"}]},
        {"keys": [{"name": "z", "type": "string"}]},
        {"number": None},
    ):
        with pytest.raises(pr.FormatError, match=r".+: expected .+, got .+"):
            Manifest.from_json(json.dumps(document(job=job | wrong)))


def test_numbers_only():
    for metrics in ({"x": float("nan")}, {"x": object()}):
        with pytest.raises(ValueError, match="manifest: expected texts and finite numbers, got"):
            manifest(metrics=metrics).to_json()


# Log


def commit_all(log, files, **fields):
    """Commit one manifest per list of files, which it makes where they are not there."""
    for one in files:
        last = log.last()
        for name in one:
            if name not in log.store.list(""):
                log.store.write(name, b"state")
        sequence = 0 if last is None else last.sequence + 1
        log.commit(manifest(sequence, last and last.reference, one, **fields))
    return log.last()


@pytest.fixture
def log(store):
    return Log(store)


@pytest.mark.usefixtures("links")
def test_log(log):
    assert log.last() is None
    first = manifest(files=["state/a"])
    log.commit(first)
    assert log.last() == first
    assert log.store.list("manifests/") == ["manifests/000000000000.json"]
    second = manifest(1, first.reference, ["state/a", "state/b"], next_router=ROUTER)
    log.commit(second)
    assert log.last() == second
    assert log.read(0) == first
    assert log.last().previous == first.reference
    stored = log.store.read(first.name).to_pybytes()
    assert hashlib.sha256(stored).hexdigest() == second.previous.sha256


@pytest.mark.usefixtures("links")
def test_fenced(log):
    """Of two drivers at the same manifest one commits, and the other learns of it."""
    last = commit_all(log, [["state/a"]])
    one = manifest(1, last.reference, ["state/one"])
    other = manifest(1, last.reference, ["state/other"])
    log.commit(one)
    with pytest.raises(FencedError, match=r"000000000001.json: .*another driver committed it"):
        log.commit(other)
    # It slept through several batches.
    commit_all(log, [["state/x"], ["state/y"]])
    with pytest.raises(FencedError, match=r"got a log at sequence 3: another driver"):
        log.commit(other)
    assert log.read(1) == one
    # A driver that follows a manifest which another one replaced.
    foreign = manifest(4, other.reference, ["state/other"])
    with pytest.raises(FencedError, match="another driver committed the batch before"):
        log.commit(foreign)
    with pytest.raises(ValueError, match="sequence: expected 4, got 6"):
        log.commit(manifest(6, log.last().reference))


def test_fenced_at_the_name(log, monkeypatch):
    # The other driver commits between the look at the log and the creation of the name.
    last = commit_all(log, [["state/a"]])
    one = manifest(1, last.reference, ["state/one"])
    create = LocalStore.create_if_absent

    def late(self, name, data):
        create(self, name, one.to_json().encode())
        create(self, name, data)

    monkeypatch.setattr(LocalStore, "create_if_absent", late)
    with pytest.raises(FencedError, match="another driver committed it"):
        log.commit(manifest(1, last.reference, ["state/other"]))
    assert log.last() == one


def test_fenced_after_clean_up(log, monkeypatch):
    # Meanwhile the name was committed, followed by others, and removed: it is free, and too late.
    last = commit_all(log, [["state/a"]])
    zombie = manifest(1, last.reference, ["state/zombie"])
    create = LocalStore.create_if_absent

    def late(self, name, data):
        monkeypatch.undo()
        commit_all(log, [["state/b"], ["state/c"], ["state/d"]])
        log.keep(2)
        create(self, name, data)

    monkeypatch.setattr(LocalStore, "create_if_absent", late)
    with pytest.raises(FencedError, match="got a log at sequence 3"):
        log.commit(zombie)
    assert log.last().sequence == 3
    log.keep(2)
    assert log._sequences() == [2, 3]


@pytest.mark.usefixtures("links")
def test_damaged_manifest(log, tmp_path):
    """A document of which any bit or the end is lost stops the log, and is named."""
    last = commit_all(log, [["state/a"], ["state/a", "state/b"]])
    name = last.name
    good = log.store.read(name).to_pybytes()
    broken = Log(LocalStore(tmp_path / "broken"))
    path = broken.store.path / name
    broken.store.write(name, b"")
    for data in [good[:size] for size in range(len(good))] + [
        good[:i] + bytes([good[i] ^ (1 << i % 7)]) + good[i + 1 :] for i in range(len(good))
    ]:
        path.write_bytes(data)
        with pytest.raises(pr.FormatError, match=rf"^{name}: "):
            broken.last()
    path.write_bytes(good)
    assert broken.last() == last
    path.rename(path.with_name("000000000007.json"))
    with pytest.raises(pr.FormatError, match=r"000000000007.json: expected sequence 7, got 1"):
        broken.last()


def test_nothing_passes_a_damaged_manifest(log):
    last = commit_all(log, [["state/a"], ["state/b"]])
    previous = log.read(0)
    log.store.write("state/orphan", b"")
    path = log.store.path / last.name
    path.write_bytes(path.read_bytes()[:-5])
    before = everything(log.store)
    for act in (
        log.last,
        lambda: log.commit(manifest(1, previous.reference)),
        lambda: log.commit(manifest(2, last.reference)),
        lambda: log.sweep(0, time.time() + 10),
    ):
        with pytest.raises(pr.FormatError, match=last.name):
            act()
    assert everything(log.store) == before


def test_other_names_are_no_manifests(log):
    last = commit_all(log, [["state/a"]])
    for name in ("manifests/9.json", "manifests/000000000009.json.bak", "manifests/x/y.json"):
        log.store.write(name, b"")
    assert log.last() == last


def test_removed_while_it_is_read(log, monkeypatch):
    commit_all(log, [["state/a"]])
    read = LocalStore.read

    def late(self, name):
        monkeypatch.undo()
        commit_all(log, [["state/b"], ["state/c"], ["state/d"]])
        log.keep(2)
        return read(self, name)

    monkeypatch.setattr(LocalStore, "read", late)
    assert log.last().sequence == 3
    monkeypatch.setattr(LocalStore, "read", lambda self, name: (self.path / "none").read_bytes())
    with pytest.raises(FileNotFoundError):
        log.last()


# Clean-up

HISTORY = [
    ["state/a"],
    ["state/a", "state/b"],
    ["state/a", "state/b", "state/c"],
    ["state/abc", "state/d"],
    ["state/abc", "state/e"],
]


@pytest.mark.usefixtures("links")
def test_keep(log):
    log.store.write("routers/0", b"")
    log.store.write("stats/old", b"")
    log.store.write("output/1", b"")
    commit_all(log, HISTORY[:3], stats="stats/old", outputs=("output/1",))
    commit_all(log, HISTORY[3:])
    log.store.write("state/in-flight", b"")
    assert log.keep(5) == []
    assert log.keep(3) == ["manifests/000000000000.json", "manifests/000000000001.json"]
    assert log.keep(2) == [
        "manifests/000000000002.json",
        *("state/a", "state/b", "state/c", "stats/old"),
    ]
    assert log.store.list("") == [
        *("manifests/000000000003.json", "manifests/000000000004.json", "output/1", "routers/0"),
        *("state/abc", "state/d", "state/e", "state/in-flight"),
    ]
    for n in (1, 0, -1):
        with pytest.raises(ValueError, match=f"n: expected at least 2 manifests, got {n}"):
            log.keep(n)


def test_outputs_that_are_staged(store):
    log = Log(store, swept=("state/", "staged/"))
    for i in range(4):
        store.write(f"staged/{i}", b"")
        commit_all(log, [[f"state/{i}"]], outputs=(f"staged/{i}",))
    store.write("staged/orphan", b"")
    log.keep(2)
    assert store.list("staged/") == ["staged/2", "staged/3", "staged/orphan"]
    assert log.sweep(10, time.time() + 20) == ["staged/orphan"]
    assert store.list("staged/") == ["staged/2", "staged/3"]


class KilledError(Exception):
    """The driver dies here."""


@pytest.mark.parametrize("survives", range(12))
def test_keep_is_killed(tmp_path, monkeypatch, survives):
    """Wherever a clean-up stops, every manifest has its files, and the next one finishes it."""
    log = Log(LocalStore(tmp_path))
    last = commit_all(log, HISTORY)
    removed = []
    remove = stores._remove

    def dying(path):
        if len(removed) == survives:
            raise KilledError
        removed.append(path)
        remove(path)

    with monkeypatch.context() as patch:
        patch.setattr(stores, "_remove", dying)
        try:
            log.keep(2)
        except KilledError:
            pass
        else:
            assert survives >= 6
    present = set(log.store.list("state/"))
    for sequence in log._sequences():
        assert log.read(sequence).files - {"routers/0"} <= present
    assert log.last() == last
    log.keep(2)
    log.sweep(10, time.time() + 20)
    assert log._sequences() == [3, 4]
    assert log.store.list("state/") == ["state/abc", "state/d", "state/e"]


def test_sweep(log):
    commit_all(log, HISTORY[:2])
    for name in ("state/old", "state/young", "stats/old", "routers/old", "output/old", "other"):
        log.store.write(name, b"")
    (log.store.path / "state" / ".pyroute-tmp-old").write_bytes(b"")
    now = time.time()
    for name in log.store.list(""):
        if "young" not in name:
            os.utime(log.store.path / name, (now - 1000, now - 1000))
    os.utime(log.store.path / "state" / ".pyroute-tmp-old", (now - 1000, now - 1000))
    assert log.sweep(2000, now) == []
    assert log.sweep(500, now) == [
        *("routers/old", "state/old", "stats/old"),
        "state/.pyroute-tmp-old",
    ]
    assert log.store.list("") == [
        *("manifests/000000000000.json", "manifests/000000000001.json", "other", "output/old"),
        *("state/a", "state/b", "state/young"),
    ]


def test_sweep_sees_what_is_committed_meanwhile(log, monkeypatch):
    commit_all(log, HISTORY[:2])
    log.store.write("state/c", b"")
    sequences = Log._sequences

    def late(self):
        monkeypatch.undo()
        commit_all(log, [["state/c"]])
        return sequences(self)

    monkeypatch.setattr(Log, "_sequences", late)
    assert log.sweep(10, time.time() + 20) == []
    assert "state/c" in log.store.list("state/")
