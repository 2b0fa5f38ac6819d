"""What is promised from Spark 3.5 on, on a real 3.5 in an environment of its own."""

import os
import subprocess
import sys
import textwrap
from pathlib import Path

from test_house import CORE

ROOT = Path(__file__).parent.parent.parent
PACKAGES = ["pyspark==3.5.*", "numpy>=2,<2.4", "pyarrow>=16", "pandas>=2.2,<3", "setuptools<81"]


def environment() -> Path:
    """An environment with the old Spark, made once and kept under build/."""
    folder = ROOT / "build" / "spark35"
    python, made = folder / "bin" / "python", folder / "made"
    if not made.exists():
        subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
        options = ["--quiet", "--disable-pip-version-check"]
        subprocess.run([str(python), "-m", "pip", *options, "install", *PACKAGES], check=True)
        made.touch()
    return python


def test_core_on_spark_35(tmp_path):
    python = environment()
    program = f"""
    import pyspark
    assert pyspark.__version__.startswith("3.5."), pyspark.__version__
    from spark_udf.session import local_session
    spark = local_session("local[2]")
    spark.sparkContext.setLogLevel("OFF")
    {CORE}
    gaps = pr.Router(pr.Ring([2, 5, 9]), {{1: 9}})
    parts = su.repartition(df, gaps, "k").select(F.spark_partition_id().alias("p"), "k").toPandas()
    assert [gaps.tasks[p] for p in parts.p] == gaps.route(parts.k.to_numpy()).tolist()
    got = df.select("k", su.route_udf(router, "pandas")("k").alias("t")).toPandas()
    assert (got.t.to_numpy() == router.route(got.k.to_numpy())).all()
    assert su.sketch(df, "k").total == 5000
    for call in (lambda: su.route_udf(router), lambda: su.RoutedStream(df, "k", **arguments)):
        arguments = dict(tasks=2, func=None, state_schema="n int", directory="d", checkpoint="c")
        try:
            call()
        except RuntimeError as error:
            print(error)
    print("old holds")
    """
    done = subprocess.run(
        [str(python), "-c", textwrap.dedent(program)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYSPARK_PYTHON": str(python)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert "old holds" in done.stdout, done.stdout[-1000:] + done.stderr[-3000:]
    assert "expected Spark 4.1 or newer, got 3.5" in done.stdout
    assert "RoutedStream: expected Spark 4.0 or newer, got 3.5" in done.stdout
