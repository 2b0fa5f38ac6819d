"""What follows a commit may be cut off anywhere, and be done by two drivers at once."""

from types import SimpleNamespace

import pyarrow.parquet as pq
import pytest

from spark_udf.stream import outputs, store
from spark_udf.stream.routed_stream import RoutedStream
from spark_udf.stream.store import LocalStore

MANIFEST = SimpleNamespace(sequence=3, batch_id=7, metrics={"rows": 5})
METRICS = "metrics/000000000003.parquet"


def write_metrics(kept):
    RoutedStream._write_metrics(SimpleNamespace(store=kept), MANIFEST)


def test_half_written_metrics_are_written_again(tmp_path):
    kept = LocalStore(tmp_path)
    kept.write(METRICS, b"PAR1 and no more")
    write_metrics(kept)
    assert pq.read_table(tmp_path / METRICS).column("rows").to_pylist() == [5]
    write_metrics(kept)
    assert [path.name for path in (tmp_path / "metrics").iterdir()] == ["000000000003.parquet"]


def test_metrics_are_there_as_a_whole_or_not_at_all(tmp_path, monkeypatch):
    """As a kill -9 leaves it: nothing is tidied up, and no reader sees half a file."""
    kept, half = LocalStore(tmp_path), []

    def killed(path, data):
        path.write_bytes(bytes(data)[:9])
        half.append(path.name)
        raise KeyboardInterrupt

    monkeypatch.setattr(store, "_write_new", killed)
    with pytest.raises(KeyboardInterrupt):
        write_metrics(kept)
    assert half
    assert kept.list("metrics/") == []
    assert not (tmp_path / METRICS).exists()


@pytest.fixture
def staged(tmp_path):
    kept = LocalStore(tmp_path)
    names = [f"staged/{i}.parquet" for i in range(3)]
    for name in names:
        kept.write(name, name.encode())
    return kept, names


def published(kept):
    return [kept.read(name).to_pybytes().decode() for name in kept.list("outputs/")]


@pytest.mark.parametrize("when", ["before it looks for files", "before it renames"])
def test_two_drivers_publish_one_batch(staged, monkeypatch, when):
    """The other one is just faster: its outputs are there, once, and neither stops."""
    kept, names = staged
    others = []

    def other():
        if not others:
            others.append(True)
            outputs.publish(kept, names, 4)

    if when == "before it renames":
        plain = outputs.sync_directory
        monkeypatch.setattr(outputs, "sync_directory", lambda path: (other(), plain(path)))
    else:
        plain = outputs.PurePosixPath
        monkeypatch.setattr(outputs, "PurePosixPath", lambda name: (other(), plain(name))[1])
    outputs.publish(kept, names, 4)
    assert others
    assert published(kept) == names
    assert kept.list("staged/") == []


def test_a_lost_output_stops(staged):
    kept, names = staged
    kept.delete(names[1])
    with pytest.raises(FileNotFoundError, match=r"staged/1\.parquet, which was committed"):
        outputs.publish(kept, names, 4)
    assert published(kept) == []
