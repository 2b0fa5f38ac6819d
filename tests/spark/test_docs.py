"""The code of docs/spark.md runs, and so does that of the README."""

import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from stream_job import words_of, write_inputs

import pyroute as pr
import spark_udf as su

ROOT = Path(__file__).parent.parent.parent
TEXT = (ROOT / "docs" / "spark.md").read_text()
README = (ROOT / "README.md").read_text()


@pytest.fixture
def blocks():
    found = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(found) == 4
    return found


def in_readme():
    (block,) = re.findall(r"```python\n(import spark_udf.*?)```", README, re.DOTALL)
    return block


@pytest.mark.parametrize("where", ["docs", "readme"])
def test_first_block(spark, blocks, capsys, where):
    from pyspark.sql import functions as F

    df = spark.range(3000).select((F.col("id") % 70).alias("user_id"))
    block = blocks[0] if where == "docs" else in_readme()
    code = block.replace("tasks=200", "tasks=5").replace("agg(...)", "count().collect()")
    exec(code, {"df": df})
    assert "imbalance" in capsys.readouterr().out


def test_colocated_block(spark, blocks, capsys):
    from pyspark.sql import functions as F

    rows = spark.range(400).select(
        F.format_string("s%d", F.col("id") % 40).alias("state"),
        F.format_string("h%d", F.col("id") % 80).alias("hashtag"),
    )
    code = blocks[1].replace("schema=...", 'schema="hashtag string"')
    names = {"su": su, "pr": pr, "history": rows, "df": rows}
    names |= {"enrich": lambda table: table.select(["hashtag"]), "count": lambda table: table}
    exec(code, names)
    assert capsys.readouterr().out.startswith("1.0 ")
    assert names["result"].count() == 400


def test_scheduling_block(spark, blocks):
    from pyspark.sql import functions as F

    operation = F.concat(F.lit("op"), F.col("id") % 7).alias("operation")
    earlier = spark.range(700).select(operation, (F.col("id") % 7 + 1).alias("seconds"))
    names = {"su": su, "pr": pr, "earlier": earlier, "df": earlier.drop("seconds")}
    names |= {"work": lambda batches: batches, "schema": "operation string"}
    lines = blocks[2].splitlines()
    lines[-1] = f"out = {lines[-1]}"
    exec("\n".join(lines), names)
    assert names["out"].count() == 700
    assert names["scheduler"].tasks == tuple(range(8))


def test_streaming_block(spark, blocks, tmp_path):
    write_inputs(tmp_path / "in", 3)
    df = (
        spark.readStream.schema("word string")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "in"))
    )
    code = blocks[3].replace("/shared", str(tmp_path))
    exec(code, {"df": df, "su": su, "pa": pa, "pc": pc})
    state = su.read_state(tmp_path / "wordcount")
    counts = dict(zip(state["word"].to_pylist(), state["n"].to_pylist(), strict=True))
    assert counts == Counter(word for batch in range(3) for word in words_of(batch))
