"""A word count as a routed stream, for tests; run as a program it is a driver to be killed.

    python stream_job.py DIRECTORY TASKS [STEP BATCH | - CHECKPOINT | lose - | slow MASTER]

kills itself with SIGKILL before step STEP of batch BATCH, or runs to the end from a checkpoint, or
kills an executor of a small cluster, or has a task that a cluster runs twice.
"""

import os
import resource
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

STEPS = ("tasks", "plan", "write", "commit", "committed", "published", "sunk", "done")


def count_words(state, batches):
    """Running counts of the words in a batch."""
    rows = list(batches)
    if not rows:
        return None
    seen = pa.Table.from_batches(rows).group_by("word").aggregate([([], "count_all")])
    seen = seen.rename_columns(["word", "n"])
    before, _ = state.read(seen.select(["word"]))
    counts = pc.add(seen["n"], pc.fill_null(before["n"], 0))
    after = pa.table({"word": seen["word"], "n": counts})
    state.write(after)
    return after


def losing(marker):
    """The same, but the first task that runs after some batches kills its executor."""

    def func(state, batches):
        if len(state) > 10 and not os.path.exists(marker):  # noqa: PTH110 - in a worker
            Path(marker).touch()
            daemon = os.getppid()
            status = Path(f"/proc/{daemon}/status").read_text()
            executor = int(status.partition("PPid:")[2].split()[0])
            os.kill(executor, signal.SIGKILL)
        return count_words(state, batches)

    return func


def full_once(marker):
    """The same, but in workers whose files have no room after some batches, until there is."""

    def func(state, batches):
        full = len(state) > 10 and not os.path.exists(marker)  # noqa: PTH110 - in a worker
        _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100 if full else hard, hard))
        return count_words(state, batches)

    return func


def slow_once(folder):
    """The same, but a task that runs after some batches does its work and waits for its copy.

    Each attempt leaves a file, by which the first sees the other, and a test sees both.
    """

    def func(state, batches):
        from pyspark import TaskContext

        context = TaskContext.get()
        task, attempt = f"{context.stageId()}-{context.partitionId()}", context.attemptNumber()
        Path(folder, f"{task}-{attempt}").touch()
        slow = len(state) > 10 and attempt == 0
        outputs = count_words(state, batches)
        if slow and not Path(folder, "slow").exists():
            Path(folder, "slow").write_text(task)
            until = time.monotonic() + 100
            while time.monotonic() < until and not Path(folder, f"{task}-1").exists():
                time.sleep(0.05)
        return outputs

    return func


def words_of(batch, rows=400, seed=0):
    """Words of one batch: skewed, and which are hot changes from batch to batch."""
    random = np.random.default_rng((seed, batch))
    weights = np.arange(1, 201) ** -1.1
    ranks = random.choice(200, rows, p=weights / weights.sum())
    return [None if (r + 7 * batch) % 97 == 0 else f"w{(r + 7 * batch) % 200}" for r in ranks]


def write_inputs(folder, batches, rows=400, start=0):
    folder.mkdir(parents=True, exist_ok=True)
    for batch in range(start, batches):
        path = folder / f"{batch:04d}.parquet"
        pq.write_table(pa.table({"word": pa.array(words_of(batch, rows), pa.string())}), path)
        os.utime(path, (1e9 + batch, 1e9 + batch))  # files are taken in this order


def expected(batches, rows=400):
    """Final counts, and the outputs of every batch."""
    total, outputs = Counter(), []
    for batch in range(batches):
        words = words_of(batch, rows)
        total.update(words)
        outputs.append({word: total[word] for word in set(words)})
    return dict(total), outputs


def stream(spark, folder, tasks=4, func=count_words, **options):
    import spark_udf as su

    df = (
        spark.readStream.schema("word string")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(folder / "in"))
    )
    given = {
        "state_schema": "n bigint",
        "output_schema": "word string, n bigint",
        "directory": folder / "state",
        "checkpoint": folder / "checkpoint",
        **options,
    }
    return su.RoutedStream(df, "word", tasks=tasks, func=func, **given)


def published(folder):
    """Outputs by batch, as readers see them."""
    out = {}
    for path in sorted((folder / "state" / "outputs").glob("batch=*")):
        table = pq.read_table(path, partitioning=None)
        rows = dict(zip(table["word"].to_pylist(), table["n"].to_pylist(), strict=True))
        assert len(rows) == table.num_rows
        out[int(path.name.partition("=")[2])] = rows
    return out


def main():
    from spark_udf.session import local_session

    folder, tasks = Path(sys.argv[1]), int(sys.argv[2])
    step, batch = sys.argv[3:5] if len(sys.argv) > 3 else ("-", "checkpoint")
    checkpoint = folder / (batch if step == "-" else "checkpoint")

    def observer(name, number):
        if (name, str(number)) == (step, batch):
            os.kill(os.getpid(), signal.SIGKILL)

    func, master = count_words, "local[2]"
    if step == "lose":  # an executor, of two
        func, master = losing(str(folder / "lost")), "local-cluster[2,1,512]"
    options = {"spark.sql.shuffle.partitions": "2", "spark.executor.memory": "512m"}
    if step == "slow":
        (folder / "attempts").mkdir()
        func, master = slow_once(str(folder / "attempts")), batch
        options |= {
            "spark.speculation": "true",
            "spark.speculation.quantile": "0.25",
            "spark.speculation.multiplier": "1.2",
        }
    spark = local_session(master, options)
    spark.sparkContext.setLogLevel("OFF")
    made = stream(spark, folder, tasks, func, observer=observer, checkpoint=checkpoint)
    made.start(availableNow=True).awaitTermination()
    print("finished", flush=True)


if __name__ == "__main__":
    main()
