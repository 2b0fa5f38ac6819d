"""Routers and the tasks of keys, for readers in other languages: python vectors.py FILE.

Written once from `pr.Router`; refuses to overwrite.
"""

import base64
import json
import sys
from pathlib import Path

import pyroute as pr
from pyroute._typed_json import encode

TEXTS = ["", "a", "anna", "key-1", "caf\u00e9", "\u4e2d\u6587", "\U0001f600"]
TEXTS += ["x" * 31, "x" * 32, "x" * 100]
TEXTS += ["\u00e9" * 40, "a/b", 'quote " and \\', "\x00", "end"] + [f"word{i}" for i in range(40)]
LONGS = [0, 1, -1, 42, 2**31, -(2**31), 2**53 + 1, 2**63 - 1, -(2**63), *range(100, 130)]
BYTES = [b"", b"a", bytes(range(256)), b"\xff" * 33]
COMPOSITES = [("a", 1), ("a", None), (None, 1), (None, None), ("", 0), ("caf\u00e9", -5), ("a", 2)]


def row(values: list, router: pr.Router, salt: int | None = None) -> list:
    keys = pr.keys(values)
    tasks = router.route(keys) if salt is None else router.route(keys, salt)
    return [
        {"value": encode(v), "id": str(i), "task": t, **({} if salt is None else {"salt": salt})}
        for v, i, t in zip(values, keys.ids.tolist(), tasks.tolist(), strict=True)
    ]


def case(about: str, router: pr.Router, *groups: list) -> dict:
    return {
        "about": about,
        "bytes": base64.b64encode(router.to_bytes()).decode(),
        "nameless": base64.b64encode(router.to_bytes(values=False)).decode(),
        "version": router.version,
        "tasks": list(router.tasks),
        "vectors": [each for group in groups for each in group],
    }


def main() -> None:
    plain = pr.Router(8)
    some = {t: i % 5 for i, t in enumerate(TEXTS[:30])}
    texts = pr.Router(pr.Ring(5, salt=7), table=some, version=3)
    ring = pr.Ring([2, 3, 5, 7], bits=8)
    longs = pr.Router(ring, table=dict.fromkeys(LONGS[:20], 7), version=2**40)
    moved = pr.Router(pr.Ring(6).with_tasks([0, 1, 2, 4]), table={"anna": 4})
    weighted = pr.Router(pr.Ring({0: 1.0, 1: 3.0, 2: 0.0}))
    many = pr.Router(pr.Ring(100, bits=10), table={f"word{i}": i * 7 % 100 for i in range(800)})
    tuples = pr.Router(4, table={("a", 2): 3, ("a", None): 0})
    split = pr.Router(6, table={"a": 5}, splits={"anna": [1, 3], "key-1": [0, 4, 5]})
    storm = pr.Router(pr.StormHash(7, key_type="string"), table={"anna": 2})
    document = {
        "about": "Router.route of pyroute; the salt chooses among the tasks of a split key",
        "cases": [
            case("a ring", plain, row(TEXTS, plain), row(LONGS, plain), row(BYTES, plain),
                 row([True, False], plain), row([None], plain), row(COMPOSITES, plain)),
            case("a table of texts over a ring with a salt", texts, row(TEXTS, texts)),
            case("a table of integers over four tasks", longs, row(LONGS, longs)),
            case("a ring with a history", moved, row(TEXTS, moved)),
            case("weights, one of them 0", weighted, row(TEXTS, weighted)),
            case("eight hundred entries", many, row(TEXTS, many)),
            case("composite keys", tuples, row(COMPOSITES, tuples)),
            case("split keys", split, *(row(TEXTS, split, salt) for salt in (0, 1, -5, 2**62))),
            case("Storm's own home", storm, row(TEXTS, storm)),
        ],
    }  # fmt: skip
    with Path(sys.argv[1]).open("x") as file:
        cases = document["cases"]
        file.write('{"about": ' + json.dumps(document["about"]) + ', "cases": [\n')
        for n, each in enumerate(cases):
            vectors = ",\n ".join(map(json.dumps, each.pop("vectors")))
            head = json.dumps(each)[:-1]
            comma = "," if n + 1 < len(cases) else ""
            file.write(f'{head}, "vectors": [\n {vectors}\n]}}{comma}\n')
        file.write("]}\n")


main()
