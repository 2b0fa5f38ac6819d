"""`pyroute doctor` on Storm: the jar is optional, and it says when there is none."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pyroute as pr

NAME = "pyroute's jar (groupings that run in Storm's workers)"


@pytest.fixture
def elsewhere(tmp_path):
    """The package in another place, without what `make storm` made."""
    pytest.importorskip("typer")
    package = Path(pr.__file__).parent
    there = tmp_path / "there"
    shutil.copytree(
        package, there / "pyroute", ignore=shutil.ignore_patterns("*.jar", "__pycache__", "train")
    )
    return there


def doctor(place, *words):
    environment = {**os.environ, "PYTHONPATH": str(place), "COLUMNS": "200"}
    command = [sys.executable, "-m", "pyroute", "doctor", *words]
    return subprocess.run(
        command, cwd=place, env=environment, capture_output=True, text=True
    ).stdout


def test_says_that_the_jar_is_missing(elsewhere):
    said = doctor(elsewhere)
    assert NAME in said
    assert "make storm, in a checkout" in said
    jar = elsewhere / "pyroute" / "storm" / "data" / "pyroute-storm.jar"
    jar.parent.mkdir(exist_ok=True)
    jar.write_bytes(b"")
    said = doctor(elsewhere, "--json")
    assert NAME not in said
    assert str(jar) in json.dumps(json.loads(said))
