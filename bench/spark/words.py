"""Which word count is it that `stream` measures, and kills?

    python -m bench.spark.words DIRECTORY

runs the word count of DIRECTORY/in to its end, from wherever an earlier run of it was killed.
"""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

import spark_udf as su

TASKS = 8


def count(state: su.KeyedState, batches: Iterator[pa.RecordBatch]) -> pa.Table | None:
    """Running counts of the words in a batch."""
    rows = list(batches)
    if not rows:
        return None
    seen = pa.Table.from_batches(rows).group_by("word").aggregate([([], "count_all")])
    before, _ = state.read(seen.select(["word"]))
    total = pc.add(seen["count_all"], pc.fill_null(before["n"], 0))
    after = pa.table({"word": seen["word"], "n": total})
    state.write(after)
    return after


def write_days(source: Path, folder: Path, most: int) -> int:
    """One file per day, in the order of the days; how many."""
    folder.mkdir(parents=True)
    table = pq.read_table(source, columns=["ts", "word"])
    days = table["ts"].to_numpy() // 86_400
    first, last = int(days.min()), int(days.max())
    n = min(most, last - first + 1)
    for day in range(n):
        path = folder / f"{day:04d}.parquet"
        pq.write_table(table.filter(pa.array(days == first + day)), path)
        os.utime(path, (1e9 + day, 1e9 + day))
    return n


def stream(spark: Any, folder: Path, state: Path, **options: Any) -> su.RoutedStream:
    df = (
        spark.readStream.schema("ts bigint, word string")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder))
    )
    return su.RoutedStream(
        *(df, "word"),
        tasks=TASKS,
        func=count,
        state_schema="n bigint",
        output_schema="word string, n bigint",
        directory=state / "state",
        checkpoint=state / "checkpoint",
        **options,
    )


def run(spark: Any, folder: Path, state: Path, **options: Any) -> None:
    stream(spark, folder, state, **options).start(availableNow=True).awaitTermination()


def counts(directory: Path) -> pa.Table:
    """The committed state, in the order of the words."""
    return su.read_state(directory).select(["word", "n"]).sort_by("word").combine_chunks()


def exact(folder: Path) -> pa.Table:
    """The same, counted at once."""
    found = pq.read_table(folder, columns=["word"]).group_by("word").aggregate([([], "count_all")])
    found = found.rename_columns(["word", "n"]).sort_by("word").combine_chunks()
    return found.cast(pa.schema([("word", pa.string()), ("n", pa.int64())]))


def days_of_batches(folder: Path, directory: Path, days: int) -> list[int] | None:
    """How many days each published batch had; None where its outputs are not exact.

    A batch publishes, for each word of its days, the count of it since the first day. A day is a
    batch, but not always: Spark notes which files it saw before it notes what the next batch is,
    and a driver that was killed between the two takes the file after them into the same batch.
    """
    total: dict[str, int] = {}
    found, day = [], 0
    for part in sorted((directory / "outputs").glob("batch=*")):
        table = pq.read_table(part, partitioning=None)
        given = dict(zip(table["word"].to_pylist(), table["n"].to_pylist(), strict=True))
        first, seen = day, set[str]()
        while day < days and (day == first or given != {word: total[word] for word in seen}):
            words = pq.read_table(folder / f"{day:04d}.parquet", columns=["word"])["word"]
            for one in pc.value_counts(words).to_pylist():
                seen.add(one["values"])
                total[one["values"]] = total.get(one["values"], 0) + one["counts"]
            day += 1
        if table.num_rows != len(seen) or given != {word: total[word] for word in seen}:
            return None
        found.append(day - first)
    return found if day == days else None


def metrics(directory: Path) -> pa.Table:
    return pq.read_table(directory / "metrics").sort_by("sequence")


def column(table: pa.Table, name: str) -> npt.NDArray[np.float64]:
    return np.asarray(table[name].to_numpy(), np.float64)


def main() -> None:
    from spark_udf.session import local_session

    folder = Path(sys.argv[1])
    spark = local_session("local[2]", {"spark.sql.shuffle.partitions": "2"})
    spark.sparkContext.setLogLevel("OFF")
    run(spark, folder / "in", folder)


if __name__ == "__main__":
    main()
