"""The examples that need Spark run, and the straggler is gone."""

import importlib.util
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


def test_straggler(spark, capsys):
    path = EXAMPLES / "spark_straggler.py"
    spec = importlib.util.spec_from_file_location("spark_straggler", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    before, after = module.main(spark, rows=60_000)
    assert after < 1.05 < 1.3 < before
    assert "users counted" in capsys.readouterr().out
