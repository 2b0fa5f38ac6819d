"""A router that a JVM follows in a config store: what is taken, what is refused, what is left."""

import base64
import os
import re
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

import pyroute as pr
from bench.storm import jars
from bench.storm.cluster import wait_for
from pyroute.control import ConfigStore
from zookeeper import ZooKeeper, require

KEYS = [f"key-{n}" for n in range(200)]
EDGE = "words/split->count"
POLL = 20  # milliseconds
LOG = """<?xml version="1.0" encoding="UTF-8"?>
<configuration status="error"><appenders><Console name="out" target="SYSTEM_ERR">
<PatternLayout pattern="%p %c{1} %msg%n%throwable"/></Console></appenders><loggers>
<logger name="pyroute" level="INFO"/>
<logger name="org.apache.storm.shade.org.apache.zookeeper.ClientCnxn" level="INFO"/>
<root level="ERROR"><appender-ref ref="out"/></root></loggers>
</configuration>
"""
pytestmark = pytest.mark.usefixtures("storm_jars")


class Worker:
    """A JVM with groupings; `Groupings.java` says what it understands."""

    def __init__(self, folder):
        settings = folder / "log4j2.xml"
        settings.write_text(LOG)
        self.path = folder / "worker.log"
        with self.path.open("wb") as log:
            self.process = subprocess.Popen(
                [
                    *("java", "-Xmx96m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
                    f"-Dlog4j2.configurationFile={settings}",
                    *("-cp", jars.class_path(local=True), "pyroute.storm.testing.Groupings"),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().rstrip("\n")

    def begin(self, name, url, targets=4, wait=60_000, poll=POLL, edge=EDGE):
        """Start to prepare a grouping."""
        assert self.ask("store", name, targets, poll, wait, url, edge) == "ok"

    def prepare(self, name, url, **options):
        self.begin(name, url, **options)
        assert self.ask("wait", name) == "ok", self.log()

    def places(self, name):
        answer = self.ask("choose", name, *KEYS)
        assert not answer.startswith("error"), answer
        return [int(word) for word in answer.split()]

    def takes(self, name, router):
        """Waits until the keys go where the router sends them."""
        wanted = places(router)
        wait_for(f"{router}\n{self.log()}", lambda: self.places(name) == wanted, 60.0)

    def threads(self):
        return self.ask("threads").split()

    def log(self):
        return self.path.read_text()

    def logged(self, text, times=1):
        """Waits until the log has it so often; then what else it has, has had time to come."""
        wait_for(f"{text}\n{self.log()}", lambda: self.log().count(text) >= times, 60.0)
        time.sleep(5 * POLL / 1000)
        assert self.log().count(text) == times, self.log()

    def close(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()


@pytest.fixture
def worker(tmp_path):
    made = Worker(tmp_path)
    yield made
    made.close()


@pytest.fixture
def url(tmp_path):
    return f"dir:{tmp_path / 'store'}"


@pytest.fixture
def store(url):
    with ConfigStore.open(url) as opened:
        yield opened


def router(version=1, tasks=4, shift=0):
    """Another one for each version: no two send all keys alike."""
    ids = range(tasks) if isinstance(tasks, int) else tasks
    home = pr.Ring(list(ids), bits=12)
    ids = sorted(ids)
    table = {f"key-{j}": ids[(version + shift + j) % len(ids)] for j in range(40)}
    return pr.Router(home, table, version=version)


def places(router):
    """Where the C++ router sends the keys, by the place of the task."""
    order = {task: place for place, task in enumerate(sorted(router.tasks))}
    return [order[task] for task in router.route(KEYS).tolist()]


def version_file(url, version):
    [folder] = [p for p in Path(url[4:]).iterdir() if p.is_dir()]
    return folder / f"{version:020d}"


def test_newer_are_taken_and_stale_refused(worker, store, url):
    store.put(EDGE, router(5).to_bytes(), 0)
    worker.prepare("a", url)
    worker.takes("a", router(5))
    store.put(EDGE, router(7).to_bytes(), 1)
    worker.takes("a", router(7))
    store.put(EDGE, router(6).to_bytes(), 2)
    worker.logged(
        "version 6): expected a higher version; Router(4 tasks, 40 tabled, 0 split, version 7)"
    )
    assert worker.places("a") == places(router(7))
    store.put(EDGE, router(8).to_bytes(), 3)
    worker.takes("a", router(8))


def test_the_same_router_again_changes_nothing(worker, store, url):
    """Whoever publishes again what is there, or starts beside it, costs no second copy of it."""
    store.put(EDGE, router(5).to_bytes(), 0)
    worker.prepare("a", url)
    store.put(EDGE, router(5).to_bytes(), 1)
    time.sleep(5 * POLL / 1000)
    worker.prepare("b", url)
    store.put(EDGE, router(6).to_bytes(), 2)
    worker.takes("a", router(6))
    worker.takes("b", router(6))
    worker.logged("takes the place of", 2)


def test_malformed_keeps_the_last_good(worker, store, url):
    """Damaged, torn, empty, no envelope, no router: each is said once, none takes the place."""
    store.put(EDGE, router(1).to_bytes(), 0)
    worker.prepare("a", url)
    worker.takes("a", router(1))
    whole = version_file(url, 1).read_bytes()
    flipped = bytearray(whole)
    flipped[-1] ^= 1
    wrong = {
        2: b"",
        3: whole[:20],
        4: whole[:100],
        5: b"no envelope, but of a length that could be one........................",
        6: whole,  # an old one, copied
        7: bytes(flipped[:8]) + (7).to_bytes(8, "big") + bytes(flipped[16:]),
    }
    for version, data in wrong.items():
        version_file(url, version).write_bytes(data)
        worker.logged(f"version {version}: document: expected")
    store.put(EDGE, b"no router", 7)
    worker.logged("version 8: data: expected bytes written by to_bytes")
    store.put(EDGE, {"a": "JSON"}, 8)
    worker.logged("version 9: document: expected bytes of a router")
    assert worker.log().count("Router(4 tasks, 40 tabled, 0 split, version 1) stays in force") == 8
    assert worker.places("a") == places(router(1))
    store.put(EDGE, router(2).to_bytes(), 9)
    worker.takes("a", router(2))


def test_lengths_are_not_believed(worker, store, url):
    """A damaged length does not take the memory of the worker."""
    store.put(EDGE, router(1).to_bytes(), 0)
    worker.prepare("a", url)
    data = bytearray(version_file(url, 1).read_bytes())
    assert data[6] == 1, "zlib"
    data[8:16] = (2).to_bytes(8, "big")
    data[16:24] = (1 << 30).to_bytes(8, "big")
    version_file(url, 2).write_bytes(data)
    worker.logged("version 2: document: expected 1073741824 bytes")
    store.put(EDGE, router(3).to_bytes(), 2)
    worker.takes("a", router(3))


@pytest.mark.parametrize("tasks", [1, 3, 5, 400])
def test_another_number_of_tasks_is_refused(worker, store, url, tasks):
    store.put(EDGE, router(1).to_bytes(), 0)
    worker.prepare("a", url)
    store.put(EDGE, router(2, tasks=tasks).to_bytes(), 1)
    worker.logged("expected 4 tasks; Router(4 tasks, 40 tabled, 0 split, version 1) stays in force")
    assert worker.places("a") == places(router(1))
    store.put(EDGE, router(3).to_bytes(), 2)
    worker.takes("a", router(3))


@pytest.mark.parametrize("last", [1000, 2**30, 2**31 - 1])
def test_any_ids_of_tasks(worker, store, url, last):
    """The i-th task is the i-th target, whatever its number is: a number is no amount of memory."""
    ids = [3, 8, 9, last]
    store.put(EDGE, router(1).to_bytes(), 0)
    worker.prepare("a", url)
    store.put(EDGE, router(2, tasks=ids).to_bytes(), 1)
    worker.takes("a", router(2, tasks=ids))
    store.put(EDGE, router(3).to_bytes(), 2)
    worker.takes("a", router(3))
    fixed = base64.b64encode(router(2, tasks=ids).to_bytes()).decode()
    assert worker.ask("bytes", "b", 4, fixed) == "ok"
    assert worker.ask("wait", "b") == "ok"
    assert worker.places("b") == places(router(2, tasks=ids))


def test_a_fixed_router_of_other_tasks_is_refused(worker):
    fixed = base64.b64encode(router(2, tasks=3).to_bytes()).decode()
    assert worker.ask("bytes", "b", 4, fixed) == "ok"
    assert worker.ask("wait", "b").endswith("router: expected 4 tasks, got 3")


def test_none_in_time(worker, store, url):
    """Where there is no router, or none that fits, the executor says so and does not start."""
    worker.begin("a", url, wait=300)
    assert "expected a router in words/split->count within 300 ms" in worker.ask("wait", "a")
    store.put(EDGE, router(1, tasks=7).to_bytes(), 0)
    worker.begin("b", url, wait=300)
    assert worker.ask("wait", "b").startswith("error IllegalStateException")
    wait_for("why", lambda: "expected 4 tasks; no router is in force" in worker.log(), 60.0)


def test_a_late_directory(worker, url, tmp_path):
    """Executors may start before the manager has written anything."""
    worker.begin("a", url)
    time.sleep(10 * POLL / 1000)
    (tmp_path / "store").write_text("a file, for now")
    time.sleep(10 * POLL / 1000)
    (tmp_path / "store").unlink()
    with ConfigStore.open(url) as store:
        store.put(EDGE, b"no router", 0)
        worker.logged("no router is known")
        store.put(EDGE, router(4).to_bytes(), 1)
    assert worker.ask("wait", "a") == "ok"
    worker.takes("a", router(4))


def test_a_late_file(worker, tmp_path):
    """A file that is still being written is read again."""
    data = router(4).to_bytes()
    worker.begin("a", f"file:{tmp_path / 'router'}")
    worker.logged("NoSuchFileException")
    (tmp_path / "router").write_bytes(data[:50])
    worker.logged("no router is known", 2)
    (tmp_path / "router").write_bytes(data)
    assert worker.ask("wait", "a") == "ok"
    worker.takes("a", router(4))


def test_what_is_not_there_is_not_looked_for_without_rest(worker, store, url):
    """A version whose file is listed and gone: looked at again with the next look, not at once."""
    store.put(EDGE, router(1).to_bytes(), 0)
    worker.prepare("a", url)
    version_file(url, 2).symlink_to("nowhere")
    worker.logged("stays in force")
    version_file(url, 2).unlink()
    store.put(EDGE, router(2).to_bytes(), 1)
    worker.takes("a", router(2))


def test_second_run(worker, url, tmp_path):
    """A topology that starts again has what the store has, also where that was made anew."""
    with ConfigStore.open(url) as store:
        store.put(EDGE, router(9).to_bytes(), 0)
    worker.prepare("first", url)
    for run in range(20):  # each begins at another moment of a look
        shutil.rmtree(tmp_path / "store")
        time.sleep(2 * POLL / 1000)  # what was read just now is not read again
        with ConfigStore.open(url) as store:
            store.put(EDGE, router(2 + run % 2).to_bytes(), 0)
        worker.prepare(f"run{run}", url)
        assert worker.places(f"run{run}") == places(router(2 + run % 2))
    assert worker.places("first") == places(router(9)), "versions only go up for those who run"
    with ConfigStore.open(url) as store:
        store.put(EDGE, router(10).to_bytes(), 1)
    worker.takes("first", router(10))
    worker.takes("run19", router(10))


def test_who_comes_during_a_look_has_one_of_their_own(worker, url, tmp_path):
    """What it reads was there before them: it may be of another run."""
    elsewhere = f"dir:{tmp_path / 'elsewhere'}"
    for place in (url, elsewhere):
        with ConfigStore.open(place) as store:
            store.put(EDGE, router(9).to_bytes(), 0)
    with ConfigStore.open(elsewhere) as store:
        store.put(EDGE, router(11).to_bytes(), 1)
    worker.prepare("first", url)
    os.mkfifo(version_file(url, 2))
    with version_file(url, 2).open("wb") as slow:  # opens when the other end is read
        shutil.rmtree(tmp_path / "store")
        with ConfigStore.open(url) as store:
            store.put(EDGE, router(2).to_bytes(), 0)
        worker.begin("second", url)
        time.sleep(0.5)
        slow.write(version_file(elsewhere, 2).read_bytes())
    assert worker.ask("wait", "second") == "ok"
    assert worker.places("second") == places(router(2))
    worker.takes("first", router(11))


def test_the_store_away_a_newcomer_has_the_last_good(worker, url, tmp_path):
    with ConfigStore.open(url) as store:
        store.put(EDGE, router(9).to_bytes(), 0)
    worker.prepare("first", url)
    (tmp_path / "store").rename(tmp_path / "away")
    (tmp_path / "store").mkdir()
    [folder] = (tmp_path / "away").iterdir()
    (tmp_path / "store" / folder.name).symlink_to(folder.name)  # a loop: cannot be listed
    worker.prepare("second", url)
    assert worker.places("second") == places(router(9))


def test_the_most_impatient_says_how_often(worker, store, url):
    store.put(EDGE, router(1).to_bytes(), 0)
    worker.prepare("a", url, poll=3_600_000)
    worker.prepare("b", url)
    store.put(EDGE, router(2).to_bytes(), 1)
    worker.takes("a", router(2))
    answer = worker.ask("store", "c", 4, 0, 60_000, url, EDGE)
    assert answer.endswith("pollMillis: expected at least 1, got 0")


def test_nothing_is_left(worker, store, url):
    """One thread for a store and document, which ends when nobody listens; then it starts anew."""
    store.put(EDGE, router(1).to_bytes(), 0)
    for name in ("a", "b", "c"):
        worker.prepare(name, url)
    assert worker.threads() == ["pyroute"]
    worker.ask("forget", "a")
    store.put(EDGE, router(2).to_bytes(), 1)
    worker.takes("b", router(2))
    worker.ask("forget", "b")
    worker.ask("forget", "c")
    wait_for("the end of the thread", lambda: worker.ask("forget", "-") and not worker.threads())
    worker.prepare("d", url)
    assert worker.places("d") == places(router(2))
    assert worker.threads() == ["pyroute"]


def test_while_records_flow(worker, store, url):
    """Every choice is of one router, none goes back; at the end it is that of the C++ router."""
    tasks, last = 50, 40
    store.put(EDGE, router(1, tasks=tasks).to_bytes(), 0)
    worker.prepare("a", url, targets=tasks, poll=1)
    assert worker.ask("hammer", "a", 3, 40) == "ok"
    for version in range(2, last + 1):
        # Other numbers of tasks each time: a mixture of two routers would show.
        ids = [1000 * version + number for number in range(tasks)]
        now = router(version, tasks=ids)
        store.put(EDGE, now.to_bytes(), version - 1)
    worker.takes("a", now)
    answer = worker.ask("rest", "a")
    for each in answer.split(" | "):
        newest, seen, records = map(int, each.split())
        assert newest == last
        assert 1 < seen <= last
        assert records > 1000
    assert worker.places("a") == places(now)


@pytest.fixture
def server(tmp_path):
    require()
    made = ZooKeeper(tmp_path / "zookeeper")
    yield made
    made.kill()


def test_zookeeper_late_killed_and_back(worker, server):
    """A server that comes late, dies and comes back, with documents of one node and of many."""
    url = f"zk://{server.hosts}/py/route"
    worker.begin("a", url)
    worker.logged("expected ZooKeeper")
    server.start()
    with ConfigStore.open(url) as store:
        store.put(EDGE, router(1).to_bytes(), 0)
        assert worker.ask("wait", "a") == "ok"
        worker.takes("a", router(1))
        server.kill()
        worker.logged("version 1) stays in force")
        assert worker.places("a") == places(router(1))
        worker.prepare("b", url)  # the last good is there for newcomers
        assert worker.places("b") == places(router(1))
        server.start()
        table = {f"key-{j}": j % 3 for j in range(100_000)}
        large = pr.Router(pr.Ring(4, bits=6), table, version=2)
        data = large.to_bytes()
        assert len(data) > 2 * 512 * 1024
        store.put(EDGE, data, 1)
        worker.takes("a", large)
        worker.takes("b", large)
        store.put(EDGE, b"no router", 2)
        worker.logged("version 3: data: expected bytes written by to_bytes")
        store.put(EDGE, router(3).to_bytes(), 3)
        worker.takes("a", router(3))
    assert worker.threads() == ["pyroute"] * 3
    worker.ask("forget", "a")
    worker.ask("forget", "b")
    wait_for("the end of threads", lambda: worker.ask("forget", "-") and not worker.threads())


def test_one_session_for_a_store(worker, server):
    """However many edges a worker follows: a server takes 60 sessions of one host."""
    server.start()
    url = f"zk://{server.hosts}/pyroute"
    with ConfigStore.open(url) as store:
        for number in range(5):
            store.put(f"edge-{number}", router(number).to_bytes(), 0)
        for number in range(5):
            worker.prepare(f"a{number}", url, edge=f"edge-{number}")
            assert worker.places(f"a{number}") == places(router(number))
        assert worker.threads() == ["pyroute"] * 3
        store.put("edge-3", router(9).to_bytes(), 1)
        worker.takes("a3", router(9))
        assert worker.places("a4") == places(router(4))


def test_zookeeper_session_expired(worker, server):
    """A worker that stood still for longer than its session lasts opens another one."""
    server.longest_session = 1000
    server.start()
    url = f"zk://{server.hosts}/pyroute"
    with ConfigStore.open(url) as store:
        store.put(EDGE, router(1).to_bytes(), 0)
        worker.prepare("a", url)
        os.kill(worker.process.pid, signal.SIGSTOP)
        time.sleep(4.0)
        os.kill(worker.process.pid, signal.SIGCONT)
        store.put(EDGE, router(2).to_bytes(), 1)
        worker.takes("a", router(2))
        sessions = re.findall("Session establishment complete.*(0x[0-9a-f]+)", worker.log())
        assert len(set(sessions)) > 1, sessions
        wait_for("the end of the old session", lambda: worker.threads() == ["pyroute"] * 3)
