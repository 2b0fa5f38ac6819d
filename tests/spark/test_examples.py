"""The examples that need Spark run, and the straggler is gone."""

import importlib.util
from pathlib import Path

from pyroute.analyze.sample import write_sample

EXAMPLES = Path(__file__).resolve().parent.parent.parent / "examples"


def load(path):
    spec = importlib.util.spec_from_file_location(path.stem, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_straggler(spark, capsys):
    module = load(EXAMPLES / "spark_straggler.py")
    before, after = module.main(spark, rows=60_000)
    assert after < 1.05 < 1.3 < before
    assert "users counted" in capsys.readouterr().out


def test_orders_job_before_and_after(spark, capsys, tmp_path):
    """The one line of the README makes the straggler go away."""
    write_sample(tmp_path / "orders.parquet", rows=40_000)
    text = (EXAMPLES / "orders_job.py").read_text()
    lines = [line for line in text.splitlines() if not line.endswith("# before")]
    (tmp_path / "mended_job.py").write_text("\n".join(lines).replace("# spread = ", "spread = "))
    before = load(EXAMPLES / "orders_job.py").main(tmp_path / "orders.parquet", spark)
    after = load(tmp_path / "mended_job.py").main(tmp_path / "orders.parquet", spark)
    assert after < 1.05 < 1.2 < before
    assert "marketplace" in capsys.readouterr().out
