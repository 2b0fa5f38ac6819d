"""Twin of spark_udf/stream/state.py: the state of all tasks is one dict from keys to values.

A key is the tuple of its columns' values. Whatever the levels and files are, a task's state is
the part of the dict that the routing gives it.
"""

from collections.abc import Callable, Iterable, Mapping

Key = tuple[object, ...]
Value = tuple[object, ...]
Owner = Callable[[Key], int]


class KeyedState:
    """The state of one task in one batch."""

    def __init__(self, rows: Mapping[Key, Value]) -> None:
        self.rows = dict(rows)

    def read(self, keys: Iterable[Key]) -> list[Value | None]:
        return [self.rows.get(key) for key in keys]

    def write(self, rows: Iterable[tuple[Key, Value]]) -> None:
        for key, value in rows:
            self.rows[key] = value

    def delete(self, keys: Iterable[Key]) -> None:
        for key in keys:
            self.rows.pop(key, None)

    def __len__(self) -> int:
        return len(self.rows)


class Tasks:
    """The state of all tasks, batch by batch."""

    def __init__(self) -> None:
        self.tasks: dict[int, dict[Key, Value]] = {}

    def open(self, task: int, owner: Owner) -> tuple[KeyedState, int, int]:
        """Return the state of a task under an owner, how many keys came, and how many left."""
        everything = {key: value for rows in self.tasks.values() for key, value in rows.items()}
        before = self.tasks.get(task, {})
        after = {key: value for key, value in everything.items() if owner(key) == task}
        return KeyedState(after), len(after.keys() - before), len(before.keys() - after)

    def commit(self, states: Mapping[int, KeyedState]) -> None:
        self.tasks = {task: dict(state.rows) for task, state in states.items()}
