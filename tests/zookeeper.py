"""A real ZooKeeper for tests: one server on loopback that can be killed and started again.

    with ZooKeeper(folder) as server:
        store = ConfigStore.open(f"zk://{server.hosts}/somewhere")

A module that wants the fixture imports it: ``from zookeeper import zookeeper  # noqa: F401``.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import time
from pathlib import Path
from typing import Self

import pytest

SCRIPT = Path("/usr/share/zookeeper/bin/zkServer.sh")


def missing() -> str | None:
    """What is not there, or None."""
    if importlib.util.find_spec("kazoo") is None:
        return "kazoo is missing: pip install 'pyroute-core[zookeeper]'"
    if not SCRIPT.exists():
        return "ZooKeeper is missing: apt-get install zookeeper"
    if shutil.which("java") is None:
        return "Java is missing: apt-get install openjdk-17-jre-headless"
    return None


def require() -> None:
    """Skip where something is missing, or fail where everything is required."""
    why = missing()
    if why is not None and os.environ.get("PYROUTE_REQUIRE") == "all":
        pytest.fail(why)
    if why is not None:
        pytest.skip(why)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


class ZooKeeper:
    """One server with its data in a folder; the port stays over restarts."""

    def __init__(self, folder: Path, port: int | None = None) -> None:
        self.folder = Path(folder)
        self.port = port or free_port()
        self.longest_session = 60_000  # milliseconds
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def hosts(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> "ZooKeeper":
        """Start it and wait until it serves sessions."""
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        settings = self.folder / "zoo.cfg"
        settings.write_text(
            f"tickTime=200\ndataDir={self.folder / 'data'}\nclientPort={self.port}\n"
            "clientPortAddress=127.0.0.1\nadmin.enableServer=false\nmaxClientCnxns=0\n"
            f"minSessionTimeout=400\nmaxSessionTimeout={self.longest_session}\n"
            "4lw.commands.whitelist=*\n"
        )
        environment = {
            **os.environ,
            "JMXDISABLE": "true",
            "ZOO_LOG_DIR": str(self.folder),
            "SERVER_JVMFLAGS": "-Xmx128m -XX:+UseSerialGC -XX:TieredStopAtLevel=1",
        }
        with (self.folder / "zookeeper.log").open("ab") as log:
            self.process = subprocess.Popen(
                [str(SCRIPT), "start-foreground", str(settings)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.wait()
        return self

    def wait(self, seconds: float = 60.0) -> None:
        """Until a session can be made: `ruok` answers too early."""
        from kazoo.client import KazooClient
        from kazoo.handlers.threading import KazooTimeoutError

        deadline = time.monotonic() + seconds
        while True:
            assert self.process is not None
            if self.process.poll() is not None:
                raise RuntimeError((self.folder / "zookeeper.log").read_text()[-2000:])
            client = KazooClient(self.hosts, timeout=5.0)
            try:
                client.start(timeout=2.0)
                return
            except KazooTimeoutError:
                if time.monotonic() > deadline:
                    raise
            finally:
                client.stop()
                client.close()

    def kill(self) -> None:
        """SIGKILL, as a lost host does it; data stays."""
        process, self.process = self.process, None
        if process is not None and process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)  # a session of its own: only the server is in it
        if process is not None:
            process.wait()

    def expire(self, client: object) -> None:
        """End the session of a kazoo client as if it had timed out."""
        from kazoo.client import KazooClient

        thief = KazooClient(self.hosts, client_id=client.client_id)  # type: ignore[attr-defined]
        thief.start(timeout=30.0)
        thief.stop()
        thief.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.kill()


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory):
    """A running server, one for each module; a test that kills it starts it again."""
    require()
    with ZooKeeper(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server
