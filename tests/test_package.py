"""What is installed: it imports fast, it is typed, and what is published is what is here."""

import importlib
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import pyroute as pr

ROOT = Path(__file__).resolve().parent.parent


def seconds(module):
    """CPU time of an import in a new process; NumPy's is part of pyroute's."""
    code = f"import time; a = time.process_time(); import {module}; print(time.process_time() - a)"
    command = [sys.executable, "-c", code]
    return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


def test_imports_fast():
    """At most 1.5 times NumPy's own import, by the least of several, which noise only raises."""
    limit, numpy, own = 1.5, [], []
    for _ in range(15):
        numpy.append(seconds("numpy"))
        own.append(seconds("pyroute"))
        if len(own) >= 3 and min(own) <= limit * min(numpy):
            return
    raise AssertionError(f"{min(own):.3f} s, and NumPy alone takes {min(numpy):.3f} s")


def test_parts_are_imported_when_asked_for():
    code = "import sys, pyroute; print(*(n for n in sys.modules if n.startswith('pyroute.')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[1] for name in done.stdout.split()}
    assert loaded == {"_core", "colocate", "keys", "rebalance"}


def test_imports_numpy_alone():
    code = (
        "import sys, numpy; before = set(sys.modules); import pyroute;"
        " print(*{name.partition('.')[0] for name in set(sys.modules) - before})"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    names = set(done.stdout.split())
    assert names & {"pyarrow", "pandas", "numba", "typer", "rich", "pyspark", "sqlalchemy"} == set()
    assert "pyroute" in names


def test_every_name_is_there():
    assert set(pr.__all__) <= set(dir(pr))
    for name in pr.__all__:
        if name not in ("arena", "control"):  # those need an extra
            assert getattr(pr, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        pr.nonsense  # noqa: B018


def test_functions_are_not_hidden_by_their_modules():
    for name in ("colocate", "rebalance", "keys"):
        importlib.import_module(f"pyroute.{name}")
        assert callable(getattr(pr, name)), name


def test_typed():
    for package in ("pyroute", "spark_udf"):
        assert (ROOT / package / "py.typed").exists()
    for stub in ("_core", "_hotpath"):
        assert (ROOT / "pyroute" / f"{stub}.pyi").exists()


def settings():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())


def test_versions_agree():
    version = settings()["project"]["version"]
    assert pr.__version__ == version
    text = (ROOT / "CITATION.cff").read_text()
    assert re.search(rf"^version: {re.escape(version)}$", text, re.MULTILINE)
    assert re.search(r"^license: Apache-2.0$", text, re.MULTILINE)


def test_everything_is_in_all():
    extras = settings()["project"]["optional-dependencies"]
    (whole,) = extras["all"]
    named = set(re.search(r"\[(.*)\]", whole)[1].split(","))
    assert named == set(extras) - {"all", "bench", "dev", "docs"}


def test_wheels_that_are_built():
    """By cibuildwheel's own word: three Pythons, two machines of Linux, no musl."""
    program = Path(sys.executable).with_name("cibuildwheel")
    if not program.exists():
        pytest.skip("cibuildwheel is missing: pip install 'pyroute-core[dev]'")
    command = [program, "--print-build-identifiers", "--platform", "linux", str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    machines, minors = ("x86_64", "aarch64"), (11, 12, 13)
    wanted = {f"cp3{minor}-manylinux_{machine}" for minor in minors for machine in machines}
    assert set(done.stdout.split()) == wanted


def test_security_says_what_the_hash_is_not():
    text = (ROOT / "SECURITY.md").read_text()
    assert "not collision-resistant" in text
    assert "127.0.0.1" in text


def test_all_papers_are_cited():
    """The four that the software implements."""
    yaml = pytest.importorskip("yaml", reason="pyyaml is missing")
    cited = yaml.safe_load((ROOT / "CITATION.cff").read_text())["references"]
    titles = [" ".join(each["title"].split()) for each in cited]
    assert len(set(titles)) == len(titles) == 4
    assert all(each["authors"] for each in cited)
