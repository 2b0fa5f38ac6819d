"""`key` in the JVM is `pyroute.keys`, whatever the type, in both of Spark's modes."""

import json
from collections import defaultdict
from pathlib import Path

import numpy as np
import pytest
from pyspark.sql import functions as F

import pyroute as pr
import spark_udf as su
from spark_udf.columns import checked

GOLDEN = Path(__file__).parent.parent / "golden" / "keys_spark.json"

TYPED = {
    "date": "date_from_unix_date(CAST({0} AS INT))",
    "timestamp": "timestamp_micros({0})",
    "timestamp_ntz": "CAST(timestamp_micros({0}) AS TIMESTAMP_NTZ)",
    "boolean": "CAST({0} AS BOOLEAN)",
}


def frame_of(spark, types, vectors):
    """Plain values in Spark columns of these types."""
    rows = []
    for vector in vectors:
        row = []
        for kind, value in zip(types, vector["values"], strict=True):
            tag, text = value["t"], value.get("v")
            if tag == "n":
                row.append(None)
            elif kind == "binary":
                row.append(str(text))
            elif kind == "string":
                row.append(text)
            else:
                row.append(str(int(text)))
        rows.append((*row, str(vector["id"])))
    names = [f"c{i}" for i in range(len(types))]
    raw = spark.createDataFrame(rows, ", ".join(f"{name} string" for name in [*names, "id"]))
    out = []
    for name, kind in zip(names, types, strict=True):
        if kind == "string":
            text = name
        elif kind == "binary":
            text = f"unbase64({name})"
        elif kind in TYPED:
            text = TYPED[kind].format(f"CAST({name} AS BIGINT)")
        else:
            text = f"CAST({name} AS {kind})"
        out.append(F.expr(text).alias(name))
    return raw.select(*out, "id"), names


@pytest.fixture(params=["true", "false"])
def ansi(request, spark):
    spark.conf.set("spark.sql.ansi.enabled", request.param)
    yield request.param
    spark.conf.unset("spark.sql.ansi.enabled")


def test_spark_vectors(spark, ansi):
    groups = defaultdict(list)
    for vector in json.loads(GOLDEN.read_text())["vectors"]:
        groups[tuple(vector["types"])].append(vector)
    assert len(groups) > 15
    for types, vectors in groups.items():
        df, names = frame_of(spark, types, vectors)
        identity = checked(df, names).identity
        rows = df.select(su.key(*names).alias("a"), identity.alias("b"), "id").collect()
        for row in rows:
            assert np.int64(row.a).astype(np.uint64) == int(row.id), (types, row)
            assert row.a == row.b


def test_equal_to_pyroute(spark):
    n = 500
    table = spark.range(n).select(
        (F.col("id") - 250).alias("l"),
        (F.col("id") - 250).cast("int").alias("i"),
        F.when(F.col("id") % 7 != 0, F.concat(F.lit("ключ"), "id")).alias("s"),
        F.when(F.col("id") % 5 != 0, F.date_sub(F.current_date(), F.col("id").cast("int"))).alias(
            "d"
        ),
        F.timestamp_micros(F.col("id") * 1_000_003).alias("t"),
        (F.col("id") % 2 == 0).alias("b"),
    )
    arrow = table.toArrow()
    for names in ["l", "i", "s", "d", "t", "b", "sl", "si", "dst", "bid"]:
        got = table.select(su.key(*names)).toArrow().column(0).to_numpy()
        expected = np.array(pr.keys(*(arrow.column(name) for name in names)).ids).view(np.int64)
        assert (got == expected).all(), names


@pytest.mark.parametrize(
    "expression",
    [
        *["1.5D", "CAST(1.5 AS FLOAT)", "CAST(1.5 AS DECIMAL(5, 1))", "array(1)", "struct(1 AS a)"],
        *["map(1, 2)", "INTERVAL '1' DAY", "'a' COLLATE UTF8_LCASE", "TIME '10:00:00'"],
    ],
)
def test_other_types_are_refused(spark, ansi, expression):
    df = spark.sql(f"SELECT {expression} AS v")
    with pytest.raises(TypeError, match="v: expected"):
        checked(df, ["v"])
    with pytest.raises(Exception, match="key: expected"):
        df.select(su.key("v")).collect()


def test_wide_decimal_raises(spark, ansi):
    df = spark.sql("SELECT CAST('9223372036854775808' AS DECIMAL(20, 0)) AS v")
    with pytest.raises(Exception, match="9223372036854775808"):
        df.select(su.key("v")).collect()


def test_no_columns(spark):
    with pytest.raises(TypeError, match="cols: expected at least one column, got none"):
        su.key()
    with pytest.raises(TypeError, match="cols: expected names or Columns, got int"):
        su.key(5)


def test_missing_column(spark):
    df = spark.range(3)
    with pytest.raises(ValueError, match="cols: expected one of id, got other"):
        checked(df, ["other"])
