"""What tests on a real Storm need; without it they are skipped, or fail if required."""

import os

import pytest

from bench.storm import jars


@pytest.fixture(scope="session")
def storm_jars():
    why = jars.missing()
    if why is not None and os.environ.get("PYROUTE_REQUIRE") == "all":
        pytest.fail(why)
    if why is not None:
        pytest.skip(why)
