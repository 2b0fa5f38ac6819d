"""What a bolt tells control of itself."""

import json
import socket
import textwrap
import threading
import time

import pytest

from pyroute.control import Hook
from pyroute.control.loop import measurement
from pyroute.storm.counters import Counters, address_of
from storm.jvm import Jvm, record


class Clock:
    now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def test_what_a_record_takes(clock):
    counters = Counters("count", 7, lambda: 3, clock)
    for seconds, records in ((0.1, 50), (0.3, 50)):
        counters.begin(records)
        clock.now += seconds
        counters.end()
        clock.now += 0.3  # waits for more
    assert counters.told() == pytest.approx(
        {"component": "count", "task": 7, "seconds": 1.0, "records": 100, "backlog": 3}
        | {"service_ms": 4.0}
    )


def test_nothing_done_is_no_time(clock):
    counters = Counters("count", 7, clock=clock)
    clock.now += 1.0
    assert "service_ms" not in counters.told()
    counters.begin(10)
    clock.now += 0.02
    counters.end()
    assert counters.told()["service_ms"] == pytest.approx(2.0)
    clock.now += 1.0
    assert counters.told()["records"] == 0
    assert "service_ms" not in counters.told()


def test_a_batch_that_hangs_is_slow(clock):
    counters = Counters("count", 7, clock=clock)
    counters.begin(10)
    clock.now += 0.1
    counters.end()
    counters.begin(10)
    clock.now += 0.05
    told = counters.told()
    assert (told["records"], told["backlog"]) == (10, 10)
    assert told["service_ms"] == pytest.approx(10.0)  # so far it is as quick as the one before
    for seconds in (1.0, 2.0, 3.0):
        clock.now += 1.0
        assert counters.told()["service_ms"] == pytest.approx(100.0 * seconds + 5.0)
    counters.end()
    assert counters.told()["backlog"] == 0


def test_the_first_batch_hangs(clock):
    counters = Counters("count", 7, clock=clock)
    clock.now += 0.9
    counters.begin(1)
    clock.now += 0.1
    assert "service_ms" not in counters.told()  # nothing to compare it with
    clock.now += 1.0
    assert counters.told()["service_ms"] == pytest.approx(1100.0)


def test_addresses():
    assert address_of(7097) == address_of("7097") == ("127.0.0.1", 7097)
    assert address_of("control.example:7097") == ("control.example", 7097)
    for bad in (0, 65_536, True, "host", "host:", "host:x", "", None, -1):
        with pytest.raises(ValueError, match=r"pyroute\.hook"):
            address_of(bad)


BOLT = """
    import time
    from pyroute.storm import Bolt

    class Slow(Bolt):
        def process(self, records):
            for record in records:
                time.sleep(record.values[0])

    Slow().run()
"""


def collected(hook, wanted, seconds=20.0):
    """Samples until one is as wanted."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        for sample in hook.collect():
            if wanted(sample.features):
                return sample
        time.sleep(0.05)
    raise AssertionError("no such sample")


def test_a_hook_hears_it(tmp_path):
    """A real child, a real socket, and what control makes of it."""
    with Hook.storm() as hook:
        jvm = Jvm(textwrap.dedent(BOLT), tmp_path, {"pyroute.hook": hook.port})
        with jvm:
            jvm.say(*(record(n, 0.02) for n in range(5)))
            sample = collected(hook, lambda f: f["records_per_s"] > 0)
            component, _, task = sample.worker.partition("/")
            assert component
            assert task.isdigit()
            found = measurement(sample.features, sample.host)
            assert 0.02 <= found.service < 1.0
            jvm.say(record(9, 4.0), record(10, 0.0))  # now it is stuck, and says so meanwhile
            sample = collected(hook, lambda f: f.get("service_ms", 0.0) > 1000)
            assert measurement(sample.features, sample.host).backlog >= 1


def test_nobody_listens(tmp_path):
    """Control may be away: the bolt goes on."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with Jvm(textwrap.dedent(BOLT), tmp_path, {"pyroute.hook": port}) as jvm:
        for n in range(3):
            jvm.say(record(n, 1.1))
            assert jvm.hear() == {"command": "ack", "id": str(n)}


def test_it_ends_with_the_bolt(clock):
    over = threading.Event()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as listener:
        listener.bind(("127.0.0.1", 0))
        listener.settimeout(20)
        counters = Counters("count", 7, clock=clock)
        address = listener.getsockname()
        thread = threading.Thread(target=counters.run, args=(address, over, 0.01))
        thread.start()
        assert json.loads(listener.recv(4096))["task"] == 7
        over.set()
        thread.join(20)
        assert not thread.is_alive()
