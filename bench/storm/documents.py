"""The config store of a cluster, seen from outside of its namespace.

A process inside does what it is told, a line of JSON for each call and each answer.
"""

import contextlib
import json
import os
import subprocess
import sys
from typing import IO, Any

from bench.storm import jars
from bench.storm.cluster import Cluster, StormError
from pyroute.control import ConfigStore, Document

TIMEOUT = 5.0


class Documents:
    """As much of a `ConfigStore` as a benchmark needs; `ConnectionError` while it is away."""

    def __init__(self, cluster: Cluster, url: str) -> None:
        self._process = cluster.hosts[0].start(
            *(sys.executable, "-m", "bench.storm.documents", url),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**os.environ, **jars.python_environment()},  # it begins in another folder
            text=True,
        )

    def get(self, name: str) -> Document | None:
        """The newest version of a document."""
        found = self._ask("get", name)
        return None if found is None else Document(*found)

    def put(self, name: str, value: Any, expect_version: int | None) -> int:
        """Write the next version of a document."""
        return int(self._ask("put", name, value, expect_version))

    def _ask(self, *call: Any) -> Any:
        to, answers = self._process.stdin, self._process.stdout
        assert to is not None
        assert answers is not None
        try:
            print(json.dumps(call), file=to, flush=True)
            line = answers.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            raise StormError("documents: expected an answer, got the end of the process")
        answer = json.loads(line)
        if "error" in answer:
            raise ConnectionError(answer["error"])
        return answer["found"]

    def close(self) -> None:
        """End the process."""
        for end in (self._process.stdin, self._process.stdout):
            assert end is not None
            with contextlib.suppress(BrokenPipeError):  # it ended before
                end.close()
        self._process.wait()


def serve(store: ConfigStore, calls: IO[str], answers: IO[str]) -> None:
    """Answer until there are no more calls."""
    for line in calls:
        kind, *arguments = json.loads(line)
        answer: dict[str, Any]
        try:
            if kind == "put":
                answer = {"found": store.put(*arguments)}
            else:
                found = store.get(*arguments)
                answer = {"found": None if found is None else [found.version, found.value]}
        except ConnectionError as error:
            answer = {"error": str(error)}
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    with ConfigStore.open(sys.argv[1], wait=False, timeout=TIMEOUT) as opened:
        serve(opened, sys.stdin, sys.stdout)
