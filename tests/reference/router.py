"""Twin of csrc/route/router.hpp: splits over a table over a home."""

from collections.abc import Callable, Mapping, Sequence

from reference.keys import key, keys, signed


def pick(id_: int, salt: int, tasks: Sequence[int]) -> int:
    """Return the task of a split key's record: pmod(xxhash64(id, salt), d) in Spark's words."""
    return tasks[signed(key(signed(id_), salt)) % len(tasks)]


def route(
    values: Sequence[object],
    home: Callable[[int], int],
    table: Mapping[object, int] | None = None,
    splits: Mapping[object, Sequence[int]] | None = None,
    salts: Sequence[int] | None = None,
) -> list[int]:
    targets = dict(zip(keys(list(table or {})), (table or {}).values(), strict=True))
    parts = dict(zip(keys(list(splits or {})), (splits or {}).values(), strict=True))
    tasks = []
    for i, id_ in enumerate(keys(list(values))):
        if id_ in parts:
            assert salts is not None
            tasks.append(pick(id_, salts[i], parts[id_]))
        else:
            tasks.append(targets[id_] if id_ in targets else home(id_))
    return tasks
