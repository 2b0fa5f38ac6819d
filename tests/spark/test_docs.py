"""The code of docs/spark.md runs."""

import re
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from stream_job import words_of, write_inputs

import spark_udf as su

TEXT = (Path(__file__).parent.parent.parent / "docs" / "spark.md").read_text()


@pytest.fixture
def blocks():
    found = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert len(found) == 2
    return found


def test_first_block(spark, blocks, capsys):
    from pyspark.sql import functions as F

    df = spark.range(3000).select((F.col("id") % 70).alias("user_id"))
    code = blocks[0].replace("tasks=200", "tasks=5").replace("agg(...)", "count().collect()")
    exec(code, {"df": df})
    assert "imbalance" in capsys.readouterr().out


def test_streaming_block(spark, blocks, tmp_path):
    write_inputs(tmp_path / "in", 3)
    df = (
        spark.readStream.schema("word string")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(tmp_path / "in"))
    )
    code = blocks[1].replace("/shared", str(tmp_path))
    exec(code, {"df": df, "su": su, "pa": pa, "pc": pc})
    state = su.read_state(tmp_path / "wordcount")
    counts = dict(zip(state["word"].to_pylist(), state["n"].to_pylist(), strict=True))
    assert counts == Counter(word for batch in range(3) for word in words_of(batch))
