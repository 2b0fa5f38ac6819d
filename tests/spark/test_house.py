"""Rules of the folder: public handles of Spark alone, and workers that lack pyroute."""

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

ROOT = Path(__file__).parent.parent.parent
PRIVATE = {"_jdf", "_jvm", "_jsc", "_jc", "_sc", "_jsparkSession", "rdd", "sparkContext"}
PRIVATE |= {"_gateway", "_active_spark_context"}
STOPS = ROOT / "spark_udf" / "run" / "session.py"
"""Takes the handles of a JVM of its own away by their names, once that has ended."""


def test_no_private_handles():
    """They do not exist on Spark Connect."""
    seen = 0
    for path in (ROOT / "spark_udf").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            seen += 1
            if isinstance(node, ast.Attribute):
                assert node.attr not in PRIVATE, f"{path.name}:{node.lineno}: {node.attr}"
            if isinstance(node, ast.Constant) and path != STOPS:
                assert node.value not in PRIVATE, f"{path.name}:{node.lineno}: {node.value}"
            if isinstance(node, ast.ImportFrom) and node.module:
                assert not node.module.startswith("pyspark.sql.classic"), path
    assert seen > 1000


def run(program: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        env={**os.environ, **environment},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=300,
    )


CORE = """
    import pyroute as pr, spark_udf as su
    from pyspark.sql import functions as F

    number = F.col("id")
    df = spark.range(5000).select((number * number % 97).alias("k"), number.alias("v"))
    router = pr.Router(4, {1: 2, 4: 3})
    got = df.select("k", su.route(router, "k").alias("t"), su.key("k").alias("i")).toPandas()
    assert (got.t.to_numpy() == router.route(got.k.to_numpy())).all()
    assert (got.i.to_numpy().astype("uint64") == pr.keys(got.k.to_numpy()).ids).all()
    out = su.repartition(df, router, "k")
    parts = out.select(F.spark_partition_id().alias("p"), "k").toPandas()
    assert (parts.p.to_numpy() == router.route(parts.k.to_numpy())).all()
    from concurrent.futures import ThreadPoolExecutor
    with ThreadPoolExecutor(1) as pool:  # whose threads have no session of their own
        pooled = pool.submit(su.route, router, "k").result()
    assert df.select("k", pooled).toPandas().pyroute_task.tolist() == got.t.tolist()
    made = su.balance(df, "k", tasks=4, method="exact")
    assert made.group_by().count().count() == df.select("k").distinct().count()
    assert made.plan.imbalance < 0.05
    print("core holds")
"""


def test_core_over_connect(tmp_path):
    program = f"""
    import os, sys
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession
    spark = SparkSession.builder.remote("local").config("spark.ui.enabled", "false").getOrCreate()
    {CORE}
    got = df.select("k", su.route_udf(router)("k").alias("t")).toPandas()
    assert (got.t.to_numpy() == router.route(got.k.to_numpy())).all()
    assert su.sketch(df, "k").total == 5000
    assert su.top_keys(df, "k", k=3).count() == 3
    split = su.balance(df, "k", tasks=40, mergeable=True)
    assert split.df.count() == 5000
    print("connect holds")
    """
    done = run(program, tmp_path)
    assert "core holds" in done.stdout, done.stderr[-3000:]
    assert "connect holds" in done.stdout, done.stderr[-3000:]


def test_workers_without_pyroute(tmp_path):
    """A worker's interpreter that has Arrow and pandas, and not pyroute."""
    import site

    packages = tmp_path / "packages"
    packages.mkdir()
    for folder in site.getsitepackages():
        for entry in Path(folder).iterdir():
            name = entry.name.lower()
            if not name.startswith(("pyroute", "__editable__", "_pyroute", "spark_udf")):
                link = packages / entry.name
                if not link.exists():
                    link.symlink_to(entry)
    worker = tmp_path / "worker"
    worker.write_text(
        f'#!/bin/sh\nexport PYTHONPATH="{packages}:$PYTHONPATH"\n'
        f'exec "{sys._base_executable}" -s "$@"\n'
    )
    worker.chmod(0o755)
    program = f"""
    import os
    os.environ["PYSPARK_PYTHON"] = {str(worker)!r}
    from spark_udf.session import local_session
    spark = local_session("local[2]")
    spark.sparkContext.setLogLevel("OFF")
    {CORE}
    try:
        df.select(su.route_udf(router)("k")).collect()
    except Exception as error:
        print(str(error))
    try:
        su.sketch(df, "k")
    except Exception as error:
        print(str(error))
    """
    done = run(program, tmp_path)
    assert "core holds" in done.stdout, done.stderr[-3000:]
    lines = [line for line in done.stdout.splitlines() if "pyroute is not installed" in line]
    assert len(lines) >= 2, done.stdout + done.stderr[-3000:]
    assert "pyroute-core[spark]" in lines[0]
    assert "docs/spark.md" in lines[0]
