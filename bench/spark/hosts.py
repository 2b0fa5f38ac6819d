"""How do several hosts with a Spark worker each fit on one machine?

A standalone master and its workers, each a process of its own, as on a real cluster: on addresses
of the loopback, or two of them, the second in a network namespace of its own, behind a link of a
given rate (Linux, root, `ip` and `tc`). The driver and the first worker share a host.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from bench.spark import harness

SPACE = "pyroute-b"
NEAR, FAR = "pyroute-a0", "pyroute-b0"  # the two ends of the link
ADDRESSES = ("10.213.7.1", "10.213.7.2")
PATIENCE = 60.0


@dataclass(frozen=True)
class Hosts:
    """Where the master is, and what a session on it needs."""

    master: str
    address: str  # of the driver
    workers: int
    link: str | None  # the near end of the link, where there is one

    def options(self) -> dict[str, str]:
        return {
            "spark.driver.host": self.address,
            "spark.driver.bindAddress": self.address,
            "spark.executor.cores": "1",
            "spark.executor.memory": "1g",
            "spark.cores.max": str(self.workers),
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{PATIENCE:.0f}s",
            "spark.executorEnv.PYTHONPATH": str(harness.ROOT),
        }

    def link_bytes(self) -> int:
        """What has crossed the link so far, in both directions, headers included; 0: no link."""
        if self.link is None:
            return 0
        folder = Path("/sys/class/net", self.link, "statistics")
        return sum(int((folder / f"{way}_bytes").read_text()) for way in ("rx", "tx"))


def can_link() -> bool:
    """Whether namespaces can be made here."""
    return os.geteuid() == 0 and all(map(shutil.which, ("ip", "tc")))


@contextlib.contextmanager
def hosts(workers: int) -> Iterator[Hosts]:
    """A running cluster, each worker on an address of the loopback."""
    with _cluster([f"127.0.0.{i + 1}" for i in range(workers)], None) as found:
        yield found


@contextlib.contextmanager
def linked_hosts(rate: str | None = None) -> Iterator[Hosts]:
    """A running cluster of two workers with a link between them, of a rate such as "20mbit"."""
    with _link(rate), _cluster(ADDRESSES, NEAR) as found:
        yield found


@contextlib.contextmanager
def _cluster(addresses: Sequence[str], link: str | None) -> Iterator[Hosts]:
    """A master at the first address, a worker at each; those after the first behind the link."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="pyroute-hosts-"))
        port = _free_port(addresses[0])
        master = f"spark://{addresses[0]}:{port}"
        log = stack.enter_context((Path(folder) / "log").open("wb"))
        start = _Starter(stack, Path(folder), log)
        start.daemon("master.Master", addresses[0], f"--port {port}".split())
        _wait_for(addresses[0], port)
        for i, address in enumerate(addresses):
            inside = ["ip", "netns", "exec", SPACE] if link is not None and i else []
            where = str(Path(folder) / f"worker{i}")
            options = ["--cores", "1", "--memory", "2g", "--work-dir", where, master]
            start.daemon("worker.Worker", address, options, inside)
        yield Hosts(master, addresses[0], len(addresses), link)


@dataclass(frozen=True)
class _Starter:
    """Starts Spark's daemons in the foreground, and ends them."""

    stack: contextlib.ExitStack
    folder: Path
    log: IO[bytes]

    def daemon(
        self, name: str, address: str, options: Sequence[str], inside: Sequence[str] = ()
    ) -> None:
        import pyspark

        from spark_udf.session import java_home

        home = Path(pyspark.__file__).parent
        java = java_home()
        command = [*inside, str(home / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}"]
        command += ["--host", address, "--webui-port", "0", *options]
        environment = {
            **os.environ,
            **({"JAVA_HOME": java} if java is not None else {}),
            "SPARK_HOME": str(home),
            "SPARK_LOCAL_IP": address,
            "SPARK_LOCAL_DIRS": str(self.folder),
            "SPARK_DAEMON_MEMORY": "256m",
        }
        process = subprocess.Popen(
            command, env=environment, stdout=self.log, stderr=self.log, start_new_session=True
        )
        self.stack.callback(_end, process)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Ends a daemon with all that it started."""
    for way in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, way)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(10)
            return


@contextlib.contextmanager
def _link(rate: str | None) -> Iterator[None]:
    """A namespace behind a pair of linked devices, each of which sends at most at this rate."""
    _remove_link()
    with contextlib.ExitStack() as stack:
        stack.callback(_remove_link)
        _ip("netns", "add", SPACE)
        _ip("link", "add", NEAR, "type", "veth", "peer", "name", FAR, "netns", SPACE)
        spaces: tuple[list[str], list[str]] = ([], ["-n", SPACE])
        for device, address, space in zip((NEAR, FAR), ADDRESSES, spaces, strict=True):
            _ip(*space, "addr", "add", f"{address}/30", "dev", device)
            _ip(*space, "link", "set", device, "up")
            if rate is not None:
                shape = f"qdisc add dev {device} root tbf rate {rate} burst 256kb latency 50ms"
                _run("tc", *space, *shape.split())
        _ip("-n", SPACE, "link", "set", "lo", "up")
        yield


def _remove_link() -> None:
    """What an earlier run may have left, too."""
    for command in (("ip", "link", "del", NEAR), ("ip", "netns", "del", SPACE)):
        subprocess.run(command, capture_output=True, check=False)


def _ip(*arguments: str) -> None:
    _run("ip", *arguments)


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _free_port(address: str) -> int:
    with socket.create_server((address, 0)) as taken:
        port: int = taken.getsockname()[1]
        return port


def _wait_for(address: str, port: int) -> None:
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with contextlib.suppress(OSError), socket.create_connection((address, port), 1):
            return
        time.sleep(0.1)
    raise RuntimeError(f"Spark's master: expected it on {address}:{port}, got no answer")
