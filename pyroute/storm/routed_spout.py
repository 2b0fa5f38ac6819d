"""Routed spout: a spout that sends each record to the task of its key itself, with no hop between.

    class Words(RoutedSpout):
        def next(self):
            self.emit_keyed("anna", [], id=json.dumps(["words", 1]))


    Words("count").run()

Storm gives a spout no input, so it takes no part in reconfigurations: it follows the routers that
the manager publishes in the config store. Until it has the newest one, records of moved keys reach
the task that they left, which sends them on; each is applied once all the same.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from pyroute._core import FormatError
from pyroute.control.config_store import ConfigStore, Document
from pyroute.router import Router
from pyroute.storm.bolt import Context, Spout
from pyroute.storm.reconfigure import Wiring, setting
from pyroute.storm.state import identity
from pyroute.storm.task_bolt import flat


class RoutedSpout(Spout):
    """A spout for one keyed operator; options that are None come from the configuration.

    Parameters
    ----------
    operator
        The keyed operator that gets the records: it reads the spout by direct grouping.
    operators
        As `Participant` has them.
    store
        URL of the config store where the manager publishes (or ``pyroute.store``). Without one,
        records go where the first routers say, and are sent on by tasks.
    """

    def __init__(
        self,
        operator: str,
        *,
        operators: Any = None,
        store: str | None = None,
    ) -> None:
        self.operator = operator
        self._options = (operators, store)
        self._news: Document | None = None
        self._news_lock = threading.Lock()

    def initialize(self, conf: dict[str, Any], context: Context) -> None:
        """Find the tasks and the router; who overrides it calls this one too."""
        operators, store = self._options
        operators = setting(operators, conf, "operators")
        if operators is None:
            raise ValueError("operators: expected the components (pyroute.operators), got none")
        stateless, first = setting(None, conf, "stateless"), setting(None, conf, "tasks")
        wiring = Wiring(context, operators, None, stateless, first)
        if self.operator not in wiring.topology.keyed:
            raise ValueError(
                f"operator: expected one of {sorted(wiring.topology.keyed)}, got {self.operator!r}"
            )
        self.router = wiring.first_routers()[self.operator]
        self._ids = {task.number: wiring.ids[task] for task in wiring.topology.tasks(self.operator)}
        url = setting(store, conf, "store")
        self._store = None if url is None else ConfigStore.open(url, wait=False)
        if self._store is not None:
            before = min(a for a, b in wiring.topology.edges if b == self.operator)
            name = f"{conf.get('topology.name') or 'topology'}/{before}->{self.operator}"
            self._store.watch(name, self._hear)

    def emit_keyed(
        self,
        key: Any,
        values: Sequence[Any],
        *,
        id: str | int,  # noqa: A002  Storm's word
        stream: str = "default",
    ) -> None:
        """Send ``[id, key, *values]`` to the task that owns the key.

        Parameters
        ----------
        key
            A value, or a tuple of several, which goes as text: the task reads the parts, which
            have to be among the values.
        values
            The fields after ``id`` and ``key``.
        id
            The application's id, the same when the record is sent again: text, a number, or the
            JSON text of ``[source, number]``. Storm says it in `acked` and `failed`.
        stream
            A direct stream.
        """
        identity(id)
        self._take_news()
        owner = self.router.route_one(tuple(key) if isinstance(key, list) else key)
        self.emit([id, flat(key), *values], id=id, stream=stream, task=self._ids[owner])

    def _hear(self, document: Document) -> None:
        with self._news_lock:  # the store's thread
            self._news = document

    def _take_news(self) -> None:
        if self._news is None:
            return
        with self._news_lock:
            document, self._news = self._news, None
        try:
            router = Router.from_bytes(document.value)
            for number in router.tasks:
                if number not in self._ids:
                    raise ValueError(f"router: expected tasks {sorted(self._ids)}, got {number}")
        except (FormatError, TypeError, ValueError) as error:
            self.log(f"version {document.version}: {error}; the last router stays in force", 3)
            return
        if router.version > self.router.version:
            self.router = router

    def finish(self) -> None:
        """Let go of the store."""
        store = getattr(self, "_store", None)
        if store is not None:
            store.close()
