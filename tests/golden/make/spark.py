"""Takes keys_spark.json and home_spark.json from Apache Spark itself.

Usage: python spark.py DIRECTORY. Files that exist are never overwritten. See README.md.
"""

from __future__ import annotations

import base64
import itertools
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as fn

Value = int | bool | str | bytes | None


class Key(NamedTuple):
    types: tuple[str, ...]
    values: tuple[Value, ...]


@dataclass(frozen=True)
class Kind:
    """How a Spark type is filled from plain values and turned into what its identity hashes."""

    carrier: str  # type of the column that brings the plain values into Spark
    typed: str  # carrier -> the Spark type
    hashed: str  # the Spark type -> bigint, string or binary
    tag: str  # of the value in JSON


def _integer(name: str) -> Kind:
    return Kind("bigint", f"CAST({{0}} AS {name})", "CAST({0} AS BIGINT)", "i")


KINDS = {
    "boolean": Kind("boolean", "{0}", "CAST({0} AS BIGINT)", "o"),
    "tinyint": _integer("TINYINT"),
    "smallint": _integer("SMALLINT"),
    "int": _integer("INT"),
    "bigint": _integer("BIGINT"),
    "decimal(9,0)": _integer("DECIMAL(9,0)"),
    "decimal(18,0)": _integer("DECIMAL(18,0)"),
    "decimal(20,0)": _integer("DECIMAL(20,0)"),
    "decimal(38,0)": _integer("DECIMAL(38,0)"),
    "date": Kind(
        "bigint",
        "date_from_unix_date(CAST({0} AS INT))",
        "CAST(unix_date({0}) AS BIGINT)",
        "d",
    ),
    "timestamp": Kind("bigint", "timestamp_micros({0})", "unix_micros({0})", "t"),
    "timestamp_ntz": Kind(
        "bigint",
        "CAST(timestamp_micros({0}) AS TIMESTAMP_NTZ)",
        "unix_micros(CAST({0} AS TIMESTAMP))",
        "t",
    ),
    "string": Kind("string", "{0}", "{0}", "s"),
    "binary": Kind("binary", "{0}", "{0}", "b"),
}

INTEGERS: dict[str, list[int]] = {
    "tinyint": [-128, -127, -1, 0, 1, 5, 126, 127],
    "smallint": [-32768, -129, -1, 0, 1, 5, 128, 256, 32767],
    "int": [-(2**31), 1 - 2**31, -32769, -1, 0, 1, 5, 65536, 2**24 + 1, 2**31 - 1],
    "bigint": [
        *[-(2**63), 1 - 2**63, -(2**53) - 1, -(2**32) - 1, -(2**32), -(2**31) - 1, -(2**31)],
        *[-1000, -5, -2, -1, 0, 1, 2, 5, 42, 127, 128, 1000, 10**9],
        *[2**31 - 1, 2**31, 2**32 - 1, 2**32, 2**32 + 1, 2**53 - 1, 2**53, 2**53 + 1],
        *[2**60, 2**60 + 1, 0x0123456789ABCDEF, 10**18, 2**63 - 2, 2**63 - 1],
    ],
    "decimal(9,0)": [-999_999_999, 0, 5, 999_999_999],
    "decimal(18,0)": [-(10**18) + 1, -1, 5, 10**18 - 1],
    "decimal(20,0)": [-(2**63), -1, 0, 1, 5, 2**31, 2**53 + 1, 2**60 + 1, 2**63 - 1],
    "decimal(38,0)": [-(2**63), 0, 5, 2**63 - 1],
    # From 0001-01-01 to 9999-12-31.
    "date": [-719162, -141428, -25567, -365, -2, -1, 0, 1, 365, 19782, 20000, 2932896],
    "timestamp": [
        *[-62135596800000000, -2208988800000000, -86400000001, -86400000000, -1000001],
        *[-1, 0, 1, 999999, 1000000, 951782400000000, 1709164800123456, 253402300799999999],
    ],
    "timestamp_ntz": [
        *[-62135596800000000, -86400000001, -1, 0, 1, 1000000],
        *[1709164800123456, 253402300799999999],
    ],
}

# Text in one to four bytes a character, in composed and decomposed form, in several scripts.
TEXTS = [
    *["é", "e\u0301", "ß", "ñandú", "Ωμέγα", "Привет", "שלום", "مرحبا", "हिन्दी", "ไทย"],
    *["日本", "日本語", "한국어", "中文字符", "€", "€€€", "\u2028", "\ufeff", "\uffff"],
    *["😀", "a😀", "😀😀", "𝔘𝔫𝔦", "👩\u200d👩\u200d👧", "🇳🇿", "\U0010ffff", "naïve café ☕ 😀!"],
    *["\0", "a\0", "\0a", "a\0b", "\0" * 8, " ", "a ", " a", "A", "\n", "\x7f", "\x80", "ÿ"],
    *["5", "0", "-1", "true", "null", "NULL", "x", "user-1", "user-2"],
]

BINARIES = [b"a", b"\x00", b"\xff", b"\xc3\x28", b"\xed\xa0\x80", b"\xf0\x9f\x98", b"\x80\x81"]

TASKS = (1, 2, 7, 8, 200, 1000)

# Hashed, as a bigint, after a null among two or more columns.
NULL_MARK = 1

# One row of values a tuple of types; every pattern of nulls over it is taken too.
PAIRS: list[Key] = [
    Key(("string", "bigint"), ("a", 5)),
    Key(("bigint", "string"), (5, "a")),
    Key(("string", "string"), ("x", "y")),
    Key(("string", "string"), ("", "")),
    Key(("bigint", "bigint"), (-1, 2**60 + 1)),
    Key(("int", "bigint"), (7, 7)),
    Key(("tinyint", "smallint"), (-128, 32767)),
    Key(("boolean", "int"), (True, -5)),
    Key(("date", "string"), (19782, "Zürich")),
    Key(("timestamp", "binary"), (-1, b"\xff\x00")),
    Key(("binary", "boolean"), (b"", False)),
    Key(("string", "timestamp"), ("日本語 😀", 1709164800123456)),
]
TRIPLES: list[Key] = [
    Key(("string", "string", "string"), ("x", "y", "z")),
    Key(("string", "bigint", "date"), ("Ωμέγα", 2**53 + 1, -1)),
    Key(("bigint", "bigint", "bigint"), (1, 2, 3)),
    Key(("boolean", "tinyint", "binary"), (False, 1, b"\x80\x81\x82\x83\x84")),
    Key(("int", "string", "timestamp"), (-(2**31), "the quick brown fox jumps over it", 0)),
]


def ascii_text(length: int) -> str:
    return "".join(chr(33 + (7 * i + length) % 94) for i in range(length))


def high_bytes(length: int) -> bytes:
    return bytes(128 + (37 * i + 11 * length) % 128 for i in range(length))


def null_patterns(key: Key) -> list[Key]:
    """The key with each subset of its values replaced by null, the whole key first."""
    masks = itertools.product((False, True), repeat=len(key.values))
    return [
        Key(key.types, tuple(None if m else v for m, v in zip(mask, key.values, strict=True)))
        for mask in masks
    ]


def identity_keys() -> list[Key]:
    keys = [Key((t,), (v,)) for t, values in INTEGERS.items() for v in values]
    keys += [Key(("boolean",), (v,)) for v in (False, True)]
    keys += [Key(("string",), (ascii_text(n),)) for n in (*range(71), 100, 1000)]
    keys += [Key(("string",), (text,)) for text in ("a", *TEXTS)]
    keys += [Key(("binary",), (v,)) for v in BINARIES]
    keys += [Key(("binary",), (high_bytes(n),)) for n in (*range(41), 63, 64, 65, 100)]
    keys += [Key((t,), (None,)) for t in KINDS]
    for key in (*PAIRS, *TRIPLES):
        keys += null_patterns(key)
    keys += null_patterns(Key(("timestamp_ntz", "decimal(20,0)"), (-1, 2**60 + 1)))
    keys += null_patterns(Key(("decimal(20,0)", "string", "timestamp_ntz"), (-1, "", 1)))
    # The same characters in the other column, and a value equal to the mark of a null (1L).
    keys += [Key(("string", "string"), v) for v in (("xy", ""), ("", "xy"), (None, "xy"))]
    keys += [Key(("bigint", "bigint"), v) for v in ((1, 1), (1, 5), (None, 5), (5, None))]
    return list(dict.fromkeys(keys))


def home_keys() -> list[Key]:
    types = ("tinyint", "smallint", "int", "bigint", "date", "timestamp")
    keys = [Key((t,), (v,)) for t in types for v in INTEGERS[t]]
    keys += [Key(("boolean",), (v,)) for v in (False, True)]
    keys += [Key(("string",), (ascii_text(n),)) for n in (*range(41), 100)]
    keys += [Key(("string",), (text,)) for text in TEXTS[:40]]
    keys += [Key(("binary",), (v,)) for v in BINARIES]
    keys += [Key(("binary",), (high_bytes(n),)) for n in range(21)]
    keys += [Key((t,), (None,)) for t in ("boolean", *types, "string", "binary")]
    for key in (*PAIRS, TRIPLES[1], TRIPLES[3]):
        keys += null_patterns(key)
    return list(dict.fromkeys(keys))


def frames(spark: SparkSession, keys: list[Key]) -> dict[tuple[str, ...], DataFrame]:
    """A frame for each tuple of types: `i`, the place in `keys`, and c0, c1, ... of those types."""
    rows: dict[tuple[str, ...], list[tuple[Any, ...]]] = defaultdict(list)
    for i, key in enumerate(keys):
        rows[key.types].append((i, *key.values))
    made = {}
    for types, data in rows.items():
        plain = ", ".join(f"c{j} {KINDS[t].carrier}" for j, t in enumerate(types))
        typed = [f"{KINDS[t].typed.format(f'c{j}')} AS c{j}" for j, t in enumerate(types)]
        made[types] = spark.createDataFrame(data, f"i int, {plain}").selectExpr("i", *typed)
        assert tuple(kind for _, kind in made[types].dtypes[1:]) == types
    return made


def identity(types: tuple[str, ...]) -> Column:
    """The identity of a key as a Spark expression."""
    columns = [fn.expr(KINDS[t].hashed.format(f"c{j}")) for j, t in enumerate(types)]
    if len(columns) == 1:
        return fn.xxhash64(columns[0])
    mark = fn.lit(NULL_MARK).cast("bigint")
    return fn.xxhash64(*[part for c in columns for part in (c, fn.when(c.isNull(), mark))])


def typed_value(kind: str, value: Value) -> dict[str, object]:
    if value is None:
        return {"t": "n"}
    tag = KINDS[kind].tag
    if isinstance(value, bytes):
        return {"t": tag, "v": base64.b64encode(value).decode("ascii")}
    return {"t": tag, "v": value if isinstance(value, (bool, str)) else str(value)}


def typed_key(key: Key) -> dict[str, object]:
    values = [typed_value(t, v) for t, v in zip(key.types, key.values, strict=True)]
    return {"types": list(key.types), "values": values}


def write(path: Path, about: str, vectors: list[dict[str, object]]) -> None:
    lines = ",\n".join(json.dumps(v, separators=(",", ":")) for v in vectors)
    with path.open("x", encoding="ascii", newline="\n") as file:
        file.write(f'{{"about":{json.dumps(about)},\n"vectors":[\n{lines}\n]}}\n')
    sys.stdout.write(f"{path.name}: {len(vectors)} vectors\n")


def take_identities(spark: SparkSession) -> list[dict[str, object]]:
    keys = identity_keys()
    ids: dict[int, int] = {}
    for types, frame in frames(spark, keys).items():
        rows = frame.select("i", identity(types).alias("id")).collect()
        ids.update((row["i"], row["id"]) for row in rows)
    by_key = {key: ids[i] for i, key in enumerate(keys)}
    assert by_key[Key(("bigint",), (5,))] == 6251837290343458373
    assert by_key[Key(("tinyint",), (5,))] == 6251837290343458373
    assert by_key[Key(("string",), ("a",))] == -8582455328737087284
    assert by_key[Key(("binary",), (b"a",))] == -8582455328737087284
    assert by_key[Key(("string", "bigint"), ("a", 5))] == -4521660676022616110
    assert all(by_key[Key((t,), (None,))] == 42 for t in KINDS)
    return [{**typed_key(key), "id": str(ids[i] % 2**64)} for i, key in enumerate(keys)]


def take_homes(spark: SparkSession) -> list[dict[str, object]]:
    keys = home_keys()
    homes: dict[int, dict[int, int]] = {}
    for types, frame in frames(spark, keys).items():
        names = [f"c{j}" for j in range(len(types))]
        hashed = fn.hash(*names)
        choices = [fn.pmod(hashed, fn.lit(n)).alias(str(n)) for n in TASKS]
        for row in frame.select("i", *choices).collect():
            homes[row["i"]] = {n: row[str(n)] for n in TASKS}
        # The formula must be what a real shuffle does: for every key with 7 and 8 partitions, and
        # with every number of partitions for the types whose hash has the most cases.
        every = types in {("string",), ("binary",), ("string", "bigint")}
        for n in TASKS if every else (7, 8):
            moved = frame.repartition(n, *names).select("i", fn.spark_partition_id().alias("p"))
            shuffled = {row["i"]: row["p"] for row in moved.collect()}
            assert shuffled == {i: homes[i][n] for i in shuffled}, (types, n)
    others = itertools.cycle(n for n in TASKS if n != 1000)
    return [
        {**typed_key(key), "tasks": n, "home": homes[i][n]}
        for i, key in enumerate(keys)
        for n in (next(others), 1000)
    ]


def main(directory: Path) -> None:
    spark = (
        SparkSession.builder.master("local[1]")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.sql.ansi.enabled", "true")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .getOrCreate()
    )
    spark.sparkContext.setLogLevel("ERROR")
    about = (
        f"Identity of a key, evaluated by Apache Spark {spark.version} as xxhash64, seed 42. Every "
        "integer width, boolean (0 or 1), date (days), timestamp and timestamp_ntz (microseconds) "
        "and decimal(p,0) is a bigint first; string and binary are hashed as they are; two or more "
        f"columns are hashed as c1, if(c1 is null, {NULL_MARK}L, null), c2, "
        f"if(c2 is null, {NULL_MARK}L, null), and so on. The id is the 64-bit result read as "
        "unsigned."
    )
    write(directory / "keys_spark.json", about, take_identities(spark))
    about = (
        f"Partition given by Apache Spark {spark.version} for repartition(tasks, columns): "
        "pmod(hash(columns), tasks), Murmur3 with seed 42, columns not cast. Compared with "
        "spark_partition_id() after a real repartition: all keys with 7 and 8 partitions; string, "
        "binary and (string, bigint) keys with every number of partitions."
    )
    write(directory / "home_spark.json", about, take_homes(spark))
    spark.stop()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(Path(sys.argv[1]))
