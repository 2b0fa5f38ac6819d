"""A real Storm for tests and benches: in one JVM (`local`), or as processes (`Cluster`).

Whatever is started here lives in namespaces of its own, where there are some: nothing listens
outside, and when the first process of the namespace ends the kernel ends all others. Without the
right to make them (not root), daemons listen on free ports, settings name 127.0.0.1, and what is
left is found by its descent.
"""

import atexit
import contextlib
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from bench.storm import jars

PATIENCE = 400.0
"""Seconds after which a wait is given up; never an expectation."""
_LOG = """<?xml version="1.0" encoding="UTF-8"?>
<configuration status="error"><appenders><Console name="out" target="SYSTEM_ERR">
<PatternLayout pattern="%d{HH:mm:ss.SSS} %p %c{1.} %msg%n%throwable"/></Console></appenders>
<loggers><root level="LEVEL"><appender-ref ref="out"/></root></loggers></configuration>
"""
_INIT = """import os, time
print("ready", flush=True)
while True:
    try:
        os.wait()
    except ChildProcessError:
        time.sleep(0.1)
"""
"""The first process of a namespace takes the orphans: a supervisor waits for dead workers to go."""


class StormError(Exception):
    """Storm did not do what it was asked for; the text has the ends of the logs."""


# Processes --------------------------------------------------------------------------------------


def parents() -> dict[int, int]:
    """Every process and its parent."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError):
                fields = (entry / "stat").read_text().rsplit(")", 1)[1].split()
                found[int(entry.name)] = int(fields[1])
    return found


def below(*roots: int) -> list[int]:
    """All processes that descend from these."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents().items():
        children.setdefault(parent, []).append(pid)
    found: list[int] = []
    todo = list(roots)
    while todo:
        for pid in children.get(todo.pop(), []):
            found.append(pid)
            todo.append(pid)
    return found


def command_of(pid: int) -> list[str]:
    """The command line of a process; empty where it is gone, or only waits to be forgotten."""
    try:
        text = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return []
    return [part.decode(errors="replace") for part in text.rstrip(b"\0").split(b"\0") if text]


def wait_for(what: str, check: Callable[[], Any], patience: float = PATIENCE) -> Any:
    """The first true answer; `StormError` where none comes."""
    until = time.monotonic() + patience
    while True:
        found = check()
        if found:
            return found
        if time.monotonic() > until:
            raise StormError(f"{what}: expected within {patience:.0f} s, got nothing")
        time.sleep(0.05)


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on now."""
    with contextlib.ExitStack() as stack:
        servers = [
            stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)
        ]
        return [int(server.getsockname()[1]) for server in servers]


class Namespace:
    """Where processes of one host run; `command` puts one inside."""

    def __init__(self, share: "Namespace | None" = None) -> None:
        self.pid = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._share = share
        self._started: list[subprocess.Popen[Any]] = []
        if not self.possible():
            return
        kinds = ["--net"] if share else ["--net", "--pid", "--mount-proc"]
        kinds += [] if share else ["--kill-child=KILL"]
        inside = 'ip link set lo up; exec "$0" -c "$1"'
        command = ["unshare", "--fork", *kinds, "sh", "-c", inside, sys.executable, _INIT]
        prefix = share.command() if share else ["setpriv", "--pdeathsig", "KILL"]
        self._process = subprocess.Popen(
            [*prefix, *command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # some versions complain at their end
            start_new_session=True,
        )
        assert self._process.stdout is not None
        if self._process.stdout.readline() != b"ready\n":
            raise StormError("unshare: expected a namespace, got none")
        self.pid = wait_for("namespace", self._first)

    def _first(self) -> int | None:
        assert self._process is not None
        inits = [pid for pid in below(self._process.pid) if _INIT in command_of(pid)]
        # unshare itself carries the text too, until it has become the one inside.
        inside = [pid for pid in inits if command_of(pid)[0] == sys.executable]
        return inside[-1] if inside else None

    @staticmethod
    def possible() -> bool:
        """Whether this process may make namespaces."""
        tools = all(shutil.which(tool) for tool in ("unshare", "nsenter", "setpriv", "ip"))
        if os.geteuid() != 0 or not tools or os.environ.get("PYROUTE_NAMESPACES") == "0":
            return False
        probe = ["unshare", "--net", "--pid", "--fork", "--mount-proc", "true"]
        return subprocess.run(probe, capture_output=True).returncode == 0

    def command(self, *arguments: str) -> list[str]:
        """A command that runs inside."""
        if not self.pid:
            return list(arguments)
        kinds = ["--net", "--pid", "--mount"]
        return ["nsenter", "--target", str(self.pid), *kinds, "--", *arguments]

    def start(self, *arguments: str, **options: Any) -> "subprocess.Popen[Any]":
        """A process inside, in a group of its own."""
        options = {"stdin": subprocess.DEVNULL, "start_new_session": True, **options}
        process = subprocess.Popen(self.command(*arguments), **options)
        self._started.append(process)
        return process

    def processes(self) -> list[int]:
        """All that run inside, by their numbers outside."""
        roots = [*(p.pid for p in self._started), *([self.pid] if self.pid else [])]
        return [*roots, *below(*roots)]

    def close(self) -> None:
        """End everything inside."""
        left = [pid for pid in self.processes() if pid]
        if self._process is not None:
            left += below(self._process.pid)
        for pid in left:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None
        for process in self._started:
            process.kill()
            process.wait()
        self._started = []
        wait_for("the end of all", lambda: not any(command_of(pid) for pid in left), 60.0)


# One JVM ----------------------------------------------------------------------------------------


def local(
    *descriptions: Mapping[str, Any],
    patience: float = PATIENCE,
    heap: str = "1g",
    level: str = "WARN",
) -> list[dict[str, Any]]:
    """Run topologies one after the other in one LocalCluster; what each did."""
    with tempfile.TemporaryDirectory(prefix="pyroute-local-") as name:
        folder = Path(name)
        files = []
        for number, description in enumerate(descriptions):
            files.append(folder / f"{number}.json")
            files[-1].write_text(json.dumps(description))
        (folder / "log4j2.xml").write_text(_LOG.replace("LEVEL", level))
        with contextlib.closing(Namespace()) as namespace, (folder / "log").open("w+b") as log:
            process = namespace.start(
                *("java", f"-Xmx{heap}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=4"),
                f"-Dlog4j2.configurationFile={folder / 'log4j2.xml'}",
                *("-Djava.net.preferIPv4Stack=true", f"-Djava.io.tmpdir={folder}"),
                *("-cp", jars.class_path(local=True), "pyroute.storm.testing.Local"),
                *map(str, files),
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
            )
            try:
                out, _ = process.communicate(timeout=patience)
            except subprocess.TimeoutExpired:
                raise StormError(
                    f"local: no end after {patience} s\n{tail(folder / 'log')}"
                ) from None
            finally:
                process.kill()
            lines = out.decode().splitlines()
            found = [
                json.loads(x.removeprefix("RESULT ")) for x in lines if x.startswith("RESULT ")
            ]
            if process.returncode or len(found) != len(descriptions):
                raise StormError(f"local: ended with {process.returncode}\n{tail(folder / 'log')}")
            return found


def tail(path: Path, size: int = 6000) -> str:
    """The end of a log."""
    with contextlib.suppress(OSError):
        return path.read_bytes()[-size:].decode(errors="replace")
    return ""


# Processes of a cluster -------------------------------------------------------------------------


class Cluster:
    """ZooKeeper, Nimbus and supervisors as processes; use it as a context.

    Parameters
    ----------
    slots
        Workers of each supervisor.
    supervisors
        How many hosts there are: each of its own network namespace, where there are some.
    rate
        Of the link between two hosts, as ``tc`` writes it ("20mbit"); None: as fast as it can.
    settings
        What to add to storm.yaml.
    """

    def __init__(
        self,
        *,
        slots: int = 2,
        supervisors: int = 1,
        rate: str | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if supervisors > 2 or (supervisors == 2 and not Namespace.possible()):
            raise ValueError("supervisors: expected 1, or 2 with namespaces, got more")
        self.folder = Path(tempfile.mkdtemp(prefix="pyroute-storm-"))
        self.slots, self.supervisors, self.rate = slots, supervisors, rate
        self.settings = dict(settings or {})
        self.hosts: list[Namespace] = []
        self.daemons: dict[str, subprocess.Popen[Any]] = {}
        atexit.register(self.close)
        try:
            self._start()
        except BaseException:
            self.close()
            raise

    # The start ---------------------------------------------------------------------------------

    def _start(self) -> None:
        self.hosts = [Namespace()]
        if self.supervisors == 2:
            self.hosts.append(Namespace(self.hosts[0]))
            self._link()
        self.zookeeper_port, self.nimbus_port, *ports = free_ports(
            2 + self.slots * self.supervisors
        )
        lib = jars.storm()
        jars.topologies()
        for host in range(self.supervisors):
            home = self._home(host)
            (home / "conf").mkdir(parents=True)
            (home / "log4j2").mkdir()
            for name in ("lib", "lib-worker"):
                (home / name).symlink_to(lib)
            for name in ("cluster.xml", "worker.xml"):
                (home / "log4j2" / name).write_text(_LOG.replace("LEVEL", "INFO"))
            mine = ports[host * self.slots : (host + 1) * self.slots]
            text = json.dumps(self._yaml(host, mine), indent=1)  # JSON is YAML
            (home / "conf" / "storm.yaml").write_text(text)
        self.start_zookeeper()
        self.start_nimbus()
        for host in range(self.supervisors):
            self.start_supervisor(host)
        wait_for("nimbus", lambda: self._listens(self.nimbus_port))

    def _address(self, host: int) -> str:
        return f"10.77.0.{host + 1}" if self.supervisors == 2 else "127.0.0.1"

    def _link(self) -> None:
        first, second = self.hosts
        for command in (
            first.command("ip", "link", "add", "pyr0", "type", "veth", "peer", "name", "pyr1"),
            ["nsenter", "-t", str(first.pid), "--net", "ip", "link", "set", "pyr1", "netns",
             str(second.pid)],
        ):  # fmt: skip
            subprocess.run(command, check=True)
        for host, namespace in enumerate(self.hosts):
            device = f"pyr{host}"
            address = f"{self._address(host)}/24"
            subprocess.run(
                self._in(namespace, "ip", "addr", "add", address, "dev", device), check=True
            )
            subprocess.run(self._in(namespace, "ip", "link", "set", device, "up"), check=True)
        if self.rate:
            self.limit(self.rate)

    def limit(self, rate: str | None) -> None:
        """Make the link between two hosts so slow ("20mbit"), or as fast as it can be."""
        for host, namespace in enumerate(self.hosts):
            change = ["tc", "qdisc", "del" if rate is None else "replace", "dev", f"pyr{host}"]
            tbf = [] if rate is None else ["tbf", "rate", rate, "burst", "256kb", "latency", "50ms"]
            subprocess.run(self._in(namespace, *change, "root", *tbf), check=rate is not None)

    def link_bytes(self) -> int:
        """Bytes that crossed the link between two hosts so far, in both directions."""
        total = 0
        for host, namespace in enumerate(self.hosts):
            for line in Path(f"/proc/{namespace.pid}/net/dev").read_text().splitlines():
                name, _, figures = line.partition(":")
                if name.strip() == f"pyr{host}":
                    total += int(figures.split()[8])  # what it sent
        return total

    @staticmethod
    def _in(namespace: Namespace, *command: str) -> list[str]:
        return ["nsenter", "-t", str(namespace.pid), "--net", *command]

    def _home(self, host: int) -> Path:
        return self.folder / f"host{host}"

    def _yaml(self, host: int, ports: Sequence[int]) -> dict[str, Any]:
        return {
            "storm.zookeeper.servers": [self._address(0)],
            "storm.zookeeper.port": self.zookeeper_port,
            "nimbus.seeds": [self._address(0)],
            "nimbus.thrift.port": self.nimbus_port,
            "storm.local.hostname": self._address(host),
            "storm.local.dir": str(self._home(host) / "state"),
            "supervisor.slots.ports": list(ports),
            "nimbus.monitor.freq.secs": 1,
            "supervisor.monitor.frequency.secs": 1,
            "supervisor.worker.shutdown.sleep.secs": 1,
            # Generous: a starved machine is not a dead one. Processes that end are seen at once.
            "supervisor.worker.timeout.secs": 120,
            "supervisor.worker.start.timeout.secs": 300,
            "nimbus.task.timeout.secs": 120,
            "nimbus.task.launch.secs": 300,
            "nimbus.supervisor.timeout.secs": 120,
            "storm.zookeeper.session.timeout": 60_000,
            "storm.metricstore.class": "org.apache.storm.metricstore.NoOpMetricStore",
            "topology.disable.loadaware.messaging": True,
            "worker.childopts": "-Xmx256m -XX:+UseSerialGC -Djava.net.preferIPv4Stack=true",
            "worker.heap.memory.mb": 256,
            **self.settings,
        }

    def java(
        self,
        main: str,
        *arguments: str,
        host: int = 0,
        options: Sequence[str] = (),
        jar: Path | None = None,
    ) -> list[str]:
        """A command that runs a class of Storm or of a topology; the test topologies by default."""
        home = self._home(host)
        jar = jar or jars.topologies()
        return [
            *("java", "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            "-Djava.net.preferIPv4Stack=true",
            *(f"-Dstorm.home={home}", f"-Dstorm.log.dir={home / 'logs'}"),
            f"-Dlog4j2.configurationFile={home / 'log4j2' / 'cluster.xml'}",
            *options,
            *("-cp", f"{home / 'lib'}/*:{home / 'conf'}:{jar}", main, *arguments),
        ]

    def _daemon(self, name: str, command: Sequence[str], host: int = 0) -> None:
        with (self.folder / f"{name}.log").open("ab") as log:
            self.daemons[name] = self.hosts[host].start(
                *command, stdout=log, stderr=subprocess.STDOUT, cwd=self._home(host)
            )

    def start_zookeeper(self) -> None:
        """Start ZooKeeper, or start it again after a kill."""
        data = self.folder / "zookeeper"
        data.mkdir(exist_ok=True)
        address = "0.0.0.0" if self.supervisors == 2 else "127.0.0.1"
        (self.folder / "zoo.cfg").write_text(
            f"dataDir={data}\nclientPort={self.zookeeper_port}\nclientPortAddress={address}\n"
            "tickTime=2000\nmaxSessionTimeout=60000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            "4lw.commands.whitelist=*\n"
        )
        main = "org.apache.storm.shade.org.apache.zookeeper.server.quorum.QuorumPeerMain"
        options = ["-Dzookeeper.jmx.log4j.disable=true"]
        command = self.java(main, str(self.folder / "zoo.cfg"), options=options)
        self._daemon("zookeeper", command)
        wait_for("zookeeper", lambda: self._listens(self.zookeeper_port))

    def start_nimbus(self) -> None:
        """Start Nimbus, or start it again after a kill."""
        self._daemon("nimbus", self.java("org.apache.storm.daemon.nimbus.Nimbus"))

    def start_supervisor(self, host: int = 0) -> None:
        """Start a supervisor, or start it again after a kill."""
        main = "org.apache.storm.daemon.supervisor.Supervisor"
        self._daemon(f"supervisor{host}", self.java(main, host=host), host)

    def _listens(self, port: int) -> bool:
        """Whether somebody listens, seen from inside."""
        wanted = f":{port:04X}"
        for table in ("tcp", "tcp6"):
            pid = self.hosts[0].pid or os.getpid()
            with contextlib.suppress(OSError):
                for line in Path(f"/proc/{pid}/net/{table}").read_text().splitlines()[1:]:
                    fields = line.split()
                    if fields[1].endswith(wanted) and fields[3] == "0A":
                        return True
        return False

    # Topologies --------------------------------------------------------------------------------

    def submit(self, description: Mapping[str, Any]) -> None:
        """Submit a topology; it starts a few seconds later."""
        file = self.folder / f"{description['name']}.json"
        file.write_text(json.dumps(description))
        command = self.java(
            "pyroute.storm.testing.Submit",
            str(file),
            options=[f"-Dstorm.jar={jars.topologies()}"],
        )
        self.run(command)

    def kill_topology(self, name: str) -> None:
        """End a topology at once."""
        self.run(self.java("pyroute.storm.testing.Kill", name))

    def run(self, command: Sequence[str], patience: float = PATIENCE) -> str:
        """Run a command inside, to its end; its output. `StormError` where it fails."""
        done = subprocess.run(
            self.hosts[0].command(*command),
            cwd=self._home(0),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=patience,
        )
        text = done.stdout.decode(errors="replace")
        if done.returncode:
            raise StormError(
                f"{' '.join(command[-3:])}: ended with {done.returncode}\n{text[-6000:]}"
            )
        return text

    # Who runs, and how they end ----------------------------------------------------------------

    def processes(self) -> list[int]:
        """Everything that belongs to this cluster."""
        return sorted({pid for host in self.hosts for pid in host.processes()})

    def workers(self) -> list[int]:
        """JVMs of workers; not the ones that only watch over them."""
        found = []
        for pid in self.processes():
            command = command_of(pid)
            java = bool(command) and Path(command[0]).name == "java"
            writer = "org.apache.storm.LogWriter" in command  # starts a worker and keeps its log
            if java and not writer and "org.apache.storm.daemon.worker.Worker" in command:
                found.append(pid)
        return found

    def children(self, word: str = "") -> dict[int, int]:
        """Child processes of workers, and the worker of each; with this word in their command."""
        workers = set(self.workers())
        return {
            pid: parent
            for pid, parent in parents().items()
            if parent in workers and any(word in part for part in command_of(pid))
        }

    def kill(self, *pids: int) -> None:
        """kill -9."""
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def kill_daemon(self, name: str) -> None:
        """kill -9 of "zookeeper", "nimbus" or "supervisor0"; workers of a supervisor go on."""
        process = self.daemons.pop(name)
        victims = [pid for pid in [process.pid, *below(process.pid)] if pid not in self.workers()]
        mains = {"zookeeper": "QuorumPeerMain", "nimbus": "Nimbus"}
        word = mains.get(name, "Supervisor")
        self.kill(*(p for p in victims if any(part.endswith(word) for part in command_of(p))))
        process.kill()
        process.wait()

    def logs(self, size: int = 4000) -> str:
        """Ends of all logs."""
        paths = [*self.folder.glob("*.log"), *self.folder.glob("host*/logs/**/*.log*")]
        return "\n".join(f"--- {path.name}\n{tail(path, size)}" for path in sorted(paths))

    def close(self) -> None:
        """End everything, and leave nothing."""
        atexit.unregister(self.close)
        for host in reversed(self.hosts):
            host.close()
        for process in self.daemons.values():
            process.kill()
            process.wait()
        self.daemons = {}
        self.hosts = []
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@contextlib.contextmanager
def logged(cluster: Cluster) -> Iterator[None]:
    """Shows the logs of a cluster where something fails."""
    try:
        yield
    except BaseException:
        print(cluster.logs(), flush=True)
        raise
