"""Twin of csrc/stats/key_stats.hpp: cost and state size of every key over the last intervals."""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass


@dataclass
class Snapshot:
    """What close_interval gives, by order of first sight."""

    values: list[Hashable]
    costs: list[float]
    state_sizes: list[int]
    interval: int


class KeyStats:
    """A list of intervals, each with what was added to each key in it."""

    def __init__(self, window: int = 5, smoothing: float = 0.0) -> None:
        self.window = window
        self.smoothing = smoothing
        self.interval = 0
        self.has_state_sizes = False
        self.forecasts: dict[Hashable, float | None] = {}  # by first sight
        self.costs: dict[Hashable, float] = {}
        self.state_sizes: list[Counter[Hashable]] = [Counter()]  # oldest interval first

    def observe(
        self,
        values: Iterable[Hashable],
        costs: Sequence[float] | None = None,
        state_sizes: Sequence[int] | None = None,
    ) -> None:
        values = list(values)
        self.has_state_sizes |= state_sizes is not None
        costs = [1.0] * len(values) if costs is None else costs
        state_sizes = [0] * len(values) if state_sizes is None else state_sizes
        for value, cost, state_size in zip(values, costs, state_sizes, strict=True):
            self.forecasts.setdefault(value, None)
            self.costs[value] = self.costs.get(value, 0.0) + cost
            self.state_sizes[-1][value] += state_size

    def forecast(self, value: Hashable) -> float:
        cost, last = self.costs.get(value, 0.0), self.forecasts[value]
        return cost if last is None else (1 - self.smoothing) * cost + self.smoothing * last

    def state_size(self, value: Hashable) -> int:
        return sum(sizes[value] for sizes in self.state_sizes) if self.has_state_sizes else 1

    def close_interval(self) -> Snapshot:
        self.forecasts = {value: self.forecast(value) for value in self.forecasts}
        snapshot = Snapshot(
            values=list(self.forecasts),
            costs=list(self.forecasts.values()),
            state_sizes=[self.state_size(value) for value in self.forecasts],
            interval=self.interval,
        )
        self.interval += 1
        self.costs = {}
        self.state_sizes = [*self.state_sizes, Counter()][-self.window :]
        seen = set().union(*self.state_sizes)
        self.forecasts = {value: f for value, f in self.forecasts.items() if value in seen}
        return snapshot

    def __len__(self) -> int:
        return len(self.forecasts)
