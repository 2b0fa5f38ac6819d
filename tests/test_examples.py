"""The examples run, and do what they say; those that need Spark are in tests/spark."""

import contextlib
import importlib.util
import io
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import pyroute as pr

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_first_look(capsys):
    load("first_look").main()
    assert "hottest keys" in capsys.readouterr().out


def test_kafka_partitioner():
    module = load("kafka_partitioner")
    default, sent = module.main()
    assert default.sum() == sent.sum() == 20_000
    assert sent.max() / sent.mean() < 1.1 < default.max() / default.mean()
    # Keys that no table names stay where Kafka has them.
    home = pr.KafkaHash(12, serializer="bytes")
    partitioner = module.Partitioner(pr.Router(home, {b"moved": 3}))
    partitions = [f"p{i}" for i in range(12)]
    assert partitioner(b"moved", partitions, partitions) == "p3"
    assert partitioner(b"other", partitions, partitions) == f"p{home.homes([b'other'])[0]}"
    assert partitioner(None, partitions, ["p5"]) == "p5"
    assert partitioner.choose(b"moved") == 3


def test_asyncio_consumer(capsys):
    module = load("asyncio_consumer")
    found = module.main()
    users = np.random.default_rng(1).zipf(1.3, module.RECORDS) % 500
    assert found == Counter(pr.keys(users).ids.tolist())
    assert "router 0 -> 1" in capsys.readouterr().out


def notebook():
    document = json.loads((EXAMPLES / "which_key_is_it.ipynb").read_text())
    return [cell for cell in document["cells"] if cell["cell_type"] == "code"], document


def test_notebook(tmp_path, monkeypatch):
    cells, _ = notebook()
    monkeypatch.chdir(tmp_path)
    names, said = {}, io.StringIO()
    with contextlib.redirect_stdout(said):
        for i, cell in enumerate(cells):
            exec(compile("".join(cell["source"]), f"cell {i}", "exec"), names)
    assert names["plan"].feasible
    assert names["loads"].max() / names["loads"].mean() < 1.1
    assert (tmp_path / "report.html").stat().st_size < 3_000_000
    assert "report.html" in said.getvalue()


def test_notebook_is_kept_without_output():
    cells, document = notebook()
    assert document["nbformat"] == 4
    for cell in cells:
        assert cell["outputs"] == []
        assert cell["execution_count"] is None


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.name)
def test_examples_say_what_they_are(path):
    text = path.read_text()
    assert text.startswith('"""')
    assert 'if __name__ == "__main__":\n    main()' in text
