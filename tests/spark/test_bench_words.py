"""The word count that the bench kills: what it calls exact."""

import json
import shutil

import pyarrow as pa
import pyarrow.parquet as pq

from bench.spark import words

DAY = 86_400


def test_a_day_that_spark_saw_before_it_was_killed(spark, tmp_path):
    """It comes with the day after it, in one batch; a wrong count in any batch is found."""
    rows = [(day * DAY, f"word{i % (day + 2)}") for day in range(5) for i in range(20)]
    ts, texts = zip(*rows, strict=True)
    pq.write_table(pa.table({"ts": ts, "word": texts}), tmp_path / "words.parquet")
    assert words.write_days(tmp_path / "words.parquet", tmp_path / "all", 5) == 5
    given = tmp_path / "in"
    given.mkdir()

    def arrive(*days):
        for day in days:
            shutil.copy2(tmp_path / "all" / f"{day:04d}.parquet", given)

    arrive(0, 1)
    words.run(spark, given, tmp_path)
    assert words.days_of_batches(given, tmp_path / "state", 2) == [1, 1]
    assert words.days_of_batches(given, tmp_path / "state", 1) is None

    arrive(2, 3, 4)
    log = tmp_path / "checkpoint" / "sources" / "0"  # what a driver wrote last, say
    version, entry = (log / "1").read_text().splitlines()
    entry = json.loads(entry)
    entry |= {"path": entry["path"].replace("0001.parquet", "0002.parquet"), "batchId": 2}
    (log / "2").write_text(f"{version}\n{json.dumps(entry)}")
    words.run(spark, given, tmp_path)
    assert words.days_of_batches(given, tmp_path / "state", 5) == [1, 1, 2, 1]
    assert words.counts(tmp_path / "state").equals(words.exact(given))

    part = next((tmp_path / "state" / "outputs" / "batch=000000000002").glob("*.parquet"))
    table = pq.read_table(part, partitioning=None)
    pq.write_table(table.set_column(1, "n", pa.array(range(table.num_rows))), part)
    assert words.days_of_batches(given, tmp_path / "state", 5) is None
