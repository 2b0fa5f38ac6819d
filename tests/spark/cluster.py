"""A real standalone cluster of Spark: a master and workers as processes of this machine."""

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pyspark

FAST_START = "-XX:TieredStopAtLevel=1"  # compilers that take long for fast code have no time here


def alone(folder, **environment):
    """An environment whose temporary files are all in one folder."""
    return {**os.environ, "TMPDIR": str(folder), **environment}


def left(session):
    """Processes of a session that still run."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, fields = (entry / "stat").read_text().rsplit(")", 1)
            except OSError:  # it ended meanwhile
                continue
            if fields.split()[0] != "Z" and int(fields.split()[3]) == session:
                found.append(state)
    return found


class Cluster:
    """A standalone master and two workers, each a process with 1 core and an address of its own."""

    def __init__(self, folder):
        from spark_udf.session import java_home

        self.folder, self.processes = folder, []
        java = java_home(folder / "java")
        self.java = {} if java is None else {"JAVA_HOME": java}
        try:
            self.url = self._start("master.Master", "--port", 0)(r"Starting Spark master at (\S+)")
            more = ("--port", 0, "--cores", 1, "--memory", "600m", "--work-dir", folder, self.url)
            hosts = ("127.0.0.1", "127.0.0.2")  # a task's copy runs on another host, or not at all
            started = [self._start("worker.Worker", *more, host=host) for host in hosts]
            for wait in started:
                wait(r"Successfully registered with (master)")
        except BaseException:
            self.stop()
            raise

    def _start(self, name, *arguments, host="127.0.0.1"):
        home = Path(pyspark.__path__[0])
        log = self.folder / f"{name}-{len(self.processes)}.log"
        fixed = ("--host", host, "--webui-port", 0)
        environment = {
            "SPARK_LOCAL_IP": host,
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": FAST_START,
            "SPARK_MASTER_OPTS": "-Dspark.master.rest.enabled=false",
        }
        with log.open("w") as file:
            self.processes.append(
                subprocess.Popen(
                    [
                        *(home / "bin" / "spark-class", f"org.apache.spark.deploy.{name}"),
                        *map(str, (*fixed, *arguments)),
                    ],
                    env=alone(self.folder, **environment, **self.java),
                    stdout=file,
                    stderr=file,
                    start_new_session=True,
                )
            )
        return lambda pattern: self._wait(self.processes[-1], log, pattern)

    @staticmethod
    def _wait(process, log, pattern):
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline and process.poll() is None:
            found = re.search(pattern, log.read_text())
            if found:
                return found[1]
            time.sleep(0.2)
        raise AssertionError(f"expected {pattern}, got\n{log.read_text()[-2000:]}")

    def stop(self):
        """End all of them, executors too."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in self.processes:
                if left(process.pid):
                    os.killpg(process.pid, number)
            deadline = time.monotonic() + 10
            while any(left(one.pid) for one in self.processes) and time.monotonic() < deadline:
                time.sleep(0.1)
        for process in self.processes:
            process.wait(10)
