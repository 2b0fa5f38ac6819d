"""What does the identity of a key cost, by the form in which values come?"""

from typing import Any

import numpy as np
import pytest

import pyroute as pr
from bench import workloads

N = 100_000


def columns() -> dict[str, Any]:
    pa = pytest.importorskip("pyarrow")
    ranks = workloads.zipf_ranks(N, 1.0, 1_000_000)
    strings = workloads.strings_of(ranks)
    texts = strings.to_pylist()
    return {
        "int64": workloads.keys_of(ranks),
        "int32": ranks.astype(np.int32),
        "numpy-U": np.array(texts),
        "numpy-S": np.array(texts, "S"),
        "numpy-object": np.array(texts, object),
        "list-int": ranks.tolist(),
        "list-str": texts,
        "arrow-string": strings,
        "arrow-large-string": strings.cast(pa.large_string()),
        "arrow-string-view": strings.cast(pa.string_view()),
        "arrow-dictionary": strings.dictionary_encode(),
        "arrow-chunked": pa.chunked_array([strings.slice(0, N // 3), strings.slice(N // 3)]),
    }


COLUMNS = (
    "int64",
    "int32",
    "numpy-U",
    "numpy-S",
    "numpy-object",
    "list-int",
    "list-str",
    "arrow-string",
    "arrow-large-string",
    "arrow-string-view",
    "arrow-dictionary",
    "arrow-chunked",
)


@pytest.fixture(scope="module")
def column() -> dict[str, Any]:
    return columns()


@pytest.mark.parametrize("form", COLUMNS)
def test_keys(benchmark, column, form):
    values = column[form]
    benchmark(lambda: pr.keys(values).ids)


def test_keys_of_two_columns(benchmark, column):
    benchmark(lambda: pr.keys(column["int64"], column["arrow-string"]).ids)
