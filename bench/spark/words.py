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


def outputs_are_exact(folder: Path, directory: Path, days: int) -> bool:
    """Whether every day's published outputs are the running counts after that day."""
    total: dict[str, int] = {}
    for day in range(days):
        words = pq.read_table(folder / f"{day:04d}.parquet", columns=["word"])["word"]
        tally = pc.value_counts(words).to_pylist()
        for one in tally:
            total[one["values"]] = total.get(one["values"], 0) + one["counts"]
        table = pq.read_table(directory / "outputs" / f"batch={day:012d}", partitioning=None)
        given = dict(zip(table["word"].to_pylist(), table["n"].to_pylist(), strict=True))
        if table.num_rows != len(tally) or given != {
            w["values"]: total[w["values"]] for w in tally
        }:
            return False
    return True


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
