"""A real PostgreSQL for tests: a cluster of its own in a folder, on a free port of loopback.

PostgreSQL refuses to run as root; there it runs as the user `postgres` of Debian's package.
"""

import importlib.util
import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


def binaries() -> Path | None:
    """Where initdb and pg_ctl are."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/pg_ctl"))
    if found:
        return found[-1].parent
    path = shutil.which("pg_ctl")
    return Path(path).resolve().parent if path else None


def missing() -> str | None:
    """What is not there, or None."""
    if importlib.util.find_spec("psycopg") is None:
        return "psycopg is missing: pip install 'pyroute-core[postgres]'"
    if binaries() is None:
        return "PostgreSQL is missing: apt-get install postgresql"
    return None


def as_user() -> list[str]:
    return ["runuser", "-u", "postgres", "--"] if os.geteuid() == 0 else []


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The URL of an empty database."""
    why = missing()
    if why is not None and os.environ.get("PYROUTE_REQUIRE") == "all":
        pytest.fail(why)
    if why is not None:
        pytest.skip(why)
    tools = binaries()
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="pyroute-pg-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if os.geteuid() == 0:
            shutil.chown(folder, "postgres")
        data, log = folder / "data", folder / "log"

        def call(*words: object) -> None:
            subprocess.run(
                [*as_user(), *map(str, words)],
                check=True,
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                timeout=180,
            )

        call(
            tools / "initdb", "-D", data, "-U", "pyroute", "-A", "trust", "-E", "UTF8", "--no-sync"
        )
        options = f"-p {port} -c listen_addresses=127.0.0.1 -k {folder} -c fsync=off"
        call(tools / "pg_ctl", "-D", data, "-l", log, "-w", "-t", "120", "-o", options, "start")
        try:
            yield f"postgresql://pyroute@127.0.0.1:{port}/postgres"
        finally:
            call(tools / "pg_ctl", "-D", data, "-m", "immediate", "-w", "stop")
