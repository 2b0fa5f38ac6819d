"""Training: from readings to a weights file, with early stopping and in pieces that can go on."""

from __future__ import annotations

import hashlib
import io
import json
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Literal, Self

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
import optax

from pyroute.control.predictor import Predictor, write_whole
from pyroute.control.train.frame import Floats, Frame, filled
from pyroute.control.train.network import Network, Shape, forward, make, weights_of

__all__ = ["Config", "Model", "Progress", "fit"]

Scale = tuple[bool, float, float, float]
F32 = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Config:
    """How a model is built and trained; the defaults are the better variant.

    Attributes
    ----------
    window, layers1, hidden1, width, layers2, hidden2, shared, residual, skip, relative
        As of `Shape`. Of a flat network `width` is the number of workers, whatever it says.
    own, common
        As of `Shape`; None: all there are.
    scaling
        "standard": mean 0 and deviation 1, clipped to `clip` deviations; "minmax": 0 to 1, clipped.
        Of the rows that are trained on.
    log
        Features and columns on a logarithmic scale: times, rates, sizes.
    validation
        Share of the rows that early stopping looks at and training does not.
    order
        Where these rows are: "last", the latest ones; "spread", ten blocks spread over all rows,
        others for every member; "random", drawn at random as in the paper, which leaks across
        time. Of a block, windows that reach into it are not trained on.
    spare
        Of blocks that are spread, early stopping looks at every other one alone: the rest is for
        whoever wants to judge what training did not look at.
    refit
        Train again on all rows, for as many steps as were best: the latest rows count too.
    rate, batch, decay, average
        Of the optimiser (AdamW, cosine decay): learning rate, samples of a step, decay of weights,
        and of the running mean of weights that is kept.
    block, blocks, patience
        Steps between two validations, how many at most, how many without a gain.
    members
        Networks whose forecasts are averaged, each from another seed.
    """

    window: int = 10
    layers1: int = 0
    hidden1: int = 0
    width: int = 0
    layers2: int = 2
    hidden2: int = 32
    shared: bool = True
    residual: bool = True
    skip: bool = True
    relative: bool = True
    own: int | None = None
    common: int | None = None
    scaling: Literal["standard", "minmax"] = "standard"
    clip: float = 4.0
    log: tuple[str, ...] = ()
    validation: float = 0.2
    order: Literal["last", "spread", "random"] = "last"
    spare: bool = False
    refit: bool = False
    rate: float = 2e-3
    batch: int = 256
    decay: float = 1e-4
    average: float = 0.98
    block: int = 25
    blocks: int = 80
    patience: int = 15
    members: int = 3

    @classmethod
    def printed(cls, **changes: Any) -> Self:
        """The I-DRNN as the paper prints it: two tiers of two layers, 3 numbers between them."""
        given: dict[str, Any] = {
            "layers1": 2,
            "hidden1": 32,
            "width": 3,
            "layers2": 2,
            "hidden2": 32,
            "residual": False,
            "skip": False,
            "relative": False,
            "own": 1,
            "common": 0,
            "scaling": "minmax",
            "members": 1,
            "order": "random",
            "validation": 0.1,
            "decay": 0.0,
            "average": 0.0,
        }
        return cls(**{**given, **changes})

    @classmethod
    def flat(cls, **changes: Any) -> Self:
        """The flat DRNN as the paper prints it: two layers over all columns."""
        return cls.printed(**{"layers2": 0, "hidden2": 0, **changes})

    def shape(self, frame: Frame) -> Shape:
        """The network for these readings."""
        workers, features = frame.workers.shape[1:]
        machine = frame.machine.shape[1]
        two = self.layers2 > 0
        width = self.width if two else workers
        return Shape(
            window=self.window,
            machine=machine,
            workers=workers,
            features=features,
            own=min(features, self.own or features) if two else features,
            common=(machine if self.common is None else min(machine, self.common)) if two else 0,
            layers1=self.layers1,
            hidden1=self.hidden1 if self.layers1 else 0,
            width=width if self.layers1 else 0,
            layers2=self.layers2,
            hidden2=self.hidden2 if two else 0,
            shared=self.shared or not two,
            residual=self.residual,
            skip=self.skip and two,
            relative=self.relative and two,
        )


@dataclass(frozen=True, slots=True)
class Progress:
    """Where training is: block `block` of at most `blocks` of member `member` of `members`."""

    member: int
    members: int
    block: int
    blocks: int
    loss: float
    validation: float
    best: float


@dataclass(frozen=True, eq=False)
class Model:
    """Trained networks with their scales; `predictor()` is what runs without JAX."""

    shape: Shape
    networks: list[Network]
    scales: list[Scale]
    names: list[str]
    low: float
    high: float
    step: float
    history: list[dict[str, Any]] = field(default_factory=list)
    workers: tuple[str, ...] = ()

    @property
    def elastic(self) -> bool:
        """One scale per feature, and any number of workers."""
        return _elastic(self.shape)

    def predictor(self) -> Predictor:
        """The model for the native core."""
        sizes = {
            **asdict(self.shape),
            "members": len(self.networks),
            "elastic": self.elastic,
            "step": self.step,
            "low": self.low,
            "high": self.high,
        }
        weights = np.concatenate([weights_of(each, self.shape) for each in self.networks])
        return Predictor.make(
            sizes,
            names=self.names,
            scales=self.scales,
            weights=weights,
            worker_names=() if self.elastic else self.workers,
        )

    @cached_property
    def _compiled(self) -> Callable[[Any], Any]:
        networks, shape = self.networks, self.shape
        return jax.jit(lambda window: sum(forward(n, shape, window[None])[0] for n in networks))

    def outputs(self, window: Any) -> F32:
        """What the networks give for one window, in the scale of the target: the mean of all."""
        ready = ready_window(np.asarray(window, np.float64), self)
        total = np.asarray(self._compiled(ready), np.float32)
        return total / np.float32(len(self.networks))

    def predict(self, window: Any) -> Floats:
        """The forecast by JAX; that of `predictor()` is equal within rounding, and faster."""
        window = np.asarray(window, np.float64)
        out = self.outputs(window).astype(np.float64)
        s = self.shape
        targets = [s.machine + (0 if self.elastic else w * s.features) for w in range(s.workers)]
        log, unit, offset, scale = (
            np.asarray(column) for column in zip(*(self.scales[t] for t in targets), strict=True)
        )
        last = filled(window)[-1, s.machine :: s.features]
        last = np.where(log, np.log1p(np.maximum(last, 0) / unit), last)
        u = out / scale + (last if s.residual else offset)
        return np.where(log, unit * np.expm1(np.where(log, u, 0.0)), u)


def _elastic(shape: Shape) -> bool:
    return not shape.layers1 and shape.shared


def ready_window(window: Floats, model: Model) -> F32:
    """A window as the networks read it."""
    s = model.shape
    scales = model.scales[: s.machine]
    per_worker = model.scales[s.machine :]
    scales = scales + per_worker * (s.workers if model.elastic else 1)
    return scaled(window, scales, model.low, model.high)


def scaled(matrix: Floats, scales: list[Scale], low: float, high: float) -> F32:
    """Columns after filling, logarithm, scale and clipping."""
    log, unit, offset, scale = (np.asarray(column) for column in zip(*scales, strict=True))
    u = _changed(filled(matrix), log, unit)
    missing = ~np.isfinite(matrix).any(axis=0)
    out = np.clip((u - offset) * scale, low, high)
    ready: F32 = np.where(missing, np.clip(0.0, low, high), out).astype(np.float32)
    return ready


def _changed(values: Floats, log: Any, unit: Any) -> Floats:
    logged = np.log1p(np.maximum(values, 0.0) / unit)
    out: Floats = np.where(log, logged, values)
    return out


def scales_of(frame: Frame, config: Config) -> list[Scale]:
    """Scales of the columns, from the rows that are trained on."""
    shape = config.shape(frame)
    columns: list[tuple[str, Floats]] = [
        (name, frame.machine[:, i]) for i, name in enumerate(frame.columns)
    ]
    if _elastic(shape):
        columns += [(name, frame.workers[:, :, i]) for i, name in enumerate(frame.features)]
    else:
        columns += [
            (name, frame.workers[:, w, i])
            for w in range(shape.workers)
            for i, name in enumerate(frame.features)
        ]
    return [_scale_of(values, name in config.log, config.scaling) for name, values in columns]


def _scale_of(values: Floats, log: bool, scaling: str) -> Scale:
    values = values[np.isfinite(values)]
    positive = values[values > 0]
    unit = float(np.median(positive)) if log and len(positive) else 1.0
    u = np.log1p(np.maximum(values, 0.0) / unit) if log else values
    if not len(u):
        return log, unit, 0.0, 1.0
    if scaling == "minmax":
        offset, spread = float(u.min()), float(u.max() - u.min())
    else:
        offset, spread = float(u.mean()), float(u.std())
    # A column that never changed says nothing: a change must not become a huge number.
    return log, unit, offset, 1 / spread if spread > 1e-12 * (1 + abs(offset)) else 1.0


@dataclass(frozen=True, eq=False)
class _Data:
    """What a network is trained on, as arrays; samples are (step, worker), or steps."""

    matrix: Any  # steps x columns, scaled
    wanted: Any  # steps x workers: outputs that would be right
    known: Any  # the same: whether it counts
    shape: Shape  # of one sample
    elastic: bool
    gain: Floats  # what outputs are multiplied with: one number, or one per network of tier 2


def _data(frame: Frame, config: Config, scales: list[Scale], low: float, high: float) -> _Data:
    shape = config.shape(frame)
    elastic = _elastic(shape)
    machine, per_worker = scales[: shape.machine], scales[shape.machine :]
    every = machine + per_worker * (shape.workers if elastic else 1)
    matrix = scaled(frame.matrix, every, low, high)
    targets = every[shape.machine :: shape.features]
    log, unit, offset, scale = (np.asarray(column) for column in zip(*targets, strict=True))
    actual = frame.target
    known = np.isfinite(actual)
    level = (_changed(filled(actual), log, unit) - offset) * scale
    gain = np.ones(1)
    if shape.residual:
        wanted = np.diff(level, axis=0, prepend=level[:1])
        known = known & np.roll(known, 1, axis=0)
        # Workers with networks of their own count alike, however much one changes.
        axis = None if shape.shared else 0
        count = np.maximum(known.sum(axis=axis), 1)
        spread = np.sqrt(np.where(known, wanted**2, 0.0).sum(axis=axis) / count)
        gain = np.atleast_1d(np.where(spread > 0, spread, 1.0))
        wanted = wanted / gain
    else:
        wanted = np.clip(level, low, high)
    known[: shape.window] = False
    one = replace(shape, workers=1) if elastic else shape
    return _Data(
        jnp.asarray(matrix),
        jnp.asarray(np.where(known, wanted, 0.0), jnp.float32),
        jnp.asarray(known, jnp.float32),
        one,
        elastic,
        gain,
    )


def _loss(
    network: Network, shape: Shape, elastic: bool, data: tuple[Any, Any, Any], at: Any
) -> jax.Array:
    matrix, wanted, known = data
    rows = at[:, 0, None] + jnp.arange(-shape.window, 0)
    if elastic:
        workers = matrix[:, shape.machine :].reshape(len(matrix), -1, shape.features)
        own = workers[rows, at[:, 1, None]]
        windows = jnp.concatenate([matrix[rows][:, :, : shape.machine], own], axis=-1)
        right, counts = wanted[at[:, 0], at[:, 1], None], known[at[:, 0], at[:, 1], None]
    else:
        windows, right, counts = matrix[rows], wanted[at[:, 0]], known[at[:, 0]]
    out = forward(network, shape, windows)
    return jnp.sum(counts * (out - right) ** 2) / jnp.maximum(jnp.sum(counts), 1.0)


@lru_cache(maxsize=64)
def _steps(
    shape: Shape, elastic: bool, rate: float, decay: float, total: int, average: float
) -> tuple[Any, Any, Any]:
    """Optimiser, one block of steps, and the loss: compiled once for all members and seeds."""
    schedule = optax.cosine_decay_schedule(rate, total)
    optimiser = optax.chain(
        optax.clip_by_global_norm(1.0), optax.adamw(schedule, weight_decay=decay)
    )

    @jax.jit
    def block(state: Any, data: Any, batches: Any) -> Any:
        def step(state: Any, at: Any) -> Any:
            network, mean, optimum = state
            loss, gradient = jax.value_and_grad(_loss)(network, shape, elastic, data, at)
            updates, optimum = optimiser.update(gradient, optimum, network)
            network = optax.apply_updates(network, updates)
            mean = jax.tree.map(lambda m, n: average * m + (1 - average) * n, mean, network)
            return (network, mean, optimum), loss

        return jax.lax.scan(step, state, batches)

    @jax.jit
    def judged(network: Any, data: Any, at: Any) -> Any:
        return _loss(network, shape, elastic, data, at)

    return optimiser, block, judged


def held_rows(
    config: Config, steps: int, member: int, seed: int
) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
    """Rows that a member is validated on, those that are spared, and those not trained on."""
    first = config.window
    count = max(1, round(config.validation * (steps - first)))
    held, spared = np.zeros(steps, bool), np.zeros(steps, bool)
    if config.order == "random":
        chance = np.random.default_rng([seed, member, 2**31])
        held[chance.choice(np.arange(first, steps), count, replace=False)] = True
    elif config.order == "spread":
        period = max(2 * config.window, (steps - first) // 10)
        size = max(1, round(config.validation * period))
        turn = round(member * period * 0.38) % period  # the golden section: far from the others
        at = np.arange(steps - first) + turn
        held[first:] = at % period >= period - size
        if config.spare:
            spared[first:] = held[first:] & (at // period % 2 == 1)
    else:
        held[max(first, steps - count) :] = True
    near = held.copy()
    if config.order != "random":  # windows that reach into the block, and those it reaches into
        for shift in range(1, config.window + 1):
            near[shift:] |= held[:-shift]
    return held & ~spared, spared, near


def _split(
    data: _Data, config: Config, member: int, seed: int
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Samples to train on and to validate on, as (step, worker)."""
    steps, workers = data.wanted.shape
    first = config.window
    held, _, near = held_rows(config, steps, member, seed)
    rows = np.arange(steps)
    usable = np.asarray(data.known).any(axis=1)
    sides = []
    for chosen in (rows[~near & usable], rows[held & usable]):
        if data.elastic:
            grid = np.stack(np.meshgrid(chosen, np.arange(workers), indexing="ij"), -1)
            sides.append(grid.reshape(-1, 2))
        else:
            sides.append(np.stack([chosen, np.zeros_like(chosen)], 1))
    if not len(sides[0]) or not len(sides[1]):
        raise ValueError(
            f"frame: expected rows for training and validation, got {steps} of a window of {first}"
        )
    return sides[0], sides[1]


def fit(
    frame: Frame,
    config: Config | None = None,
    *,
    seed: int = 0,
    checkpoint: str | Path | None = None,
    progress: Callable[[Progress], None] | None = None,
) -> Model:
    """Train a model on all rows of a frame.

    Parameters
    ----------
    frame
        Readings; the latest ones last.
    config
        How; None: the better variant.
    seed
        Of the first weights and of the order of samples. Equal input gives an equal model.
    checkpoint
        File that keeps how far training is. If it is there training goes on from it, and ends with
        the model that it would have had without a stop. It is removed at the end.
    progress
        Called after every block.
    """
    config = config or Config()
    if len(frame) < 3 * config.window:
        raise ValueError(f"frame: expected {3 * config.window} steps or more, got {len(frame)}")
    low, high = (0.0, 1.0) if config.scaling == "minmax" else (-config.clip, config.clip)
    scales = scales_of(frame, config)
    data = _data(frame, config, scales, low, high)
    keeper = _Keeper(checkpoint, frame, config, seed)
    networks: list[Network] = []
    history: list[dict[str, Any]] = []
    for member in range(config.members):
        network, told = _member(data, config, seed, member, keeper, progress)
        networks.append(network)
        history.append(told)
    keeper.remove()
    return Model(
        config.shape(frame),
        [_amplified(network, data.gain) for network in networks],
        scales,
        [*frame.columns, *frame.features],
        low,
        high,
        frame.step,
        history,
        tuple(frame.names) if all(frame.names) else (),
    )


def _member(
    data: _Data,
    config: Config,
    seed: int,
    member: int,
    keeper: _Keeper,
    progress: Callable[[Progress], None] | None,
) -> tuple[Network, dict[str, Any]]:
    training, held = _split(data, config, member, seed)
    total = config.block * config.blocks
    steps = _steps(data.shape, data.elastic, config.rate, config.decay, total, config.average)
    optimiser, block, judged = steps
    network = make(data.shape, jax.random.PRNGKey(1000 * seed + member))
    arrays = data.matrix, data.wanted, data.known
    state = network, network, optimiser.init(network)
    best, told = network, {"best": float("inf"), "at": -1, "block": 0, "validation": []}
    most = 4096 if data.elastic else 1024
    looked = held[:: -(-len(held) // most)]
    state, best, told = keeper.load(member, state, best, told)
    for number in range(told["block"], config.blocks):
        if number - told["at"] > config.patience:
            break
        chance = np.random.default_rng([seed, member, number])
        at = training[chance.integers(0, len(training), (config.block, config.batch))]
        state, losses = block(state, arrays, at)
        now = float(judged(state[1], arrays, looked))
        told["validation"].append(now)
        told["block"] = number + 1
        if now < told["best"]:
            best, told["best"], told["at"] = state[1], now, number
        keeper.save(member, state, best, told)
        if progress is not None:
            loss = float(losses.mean())
            progress(
                Progress(member, config.members, number + 1, config.blocks, loss, now, told["best"])
            )
    keeper.save(member, state, best, told, force=True)
    if config.refit:
        every = np.concatenate([training, held])
        state = network, network, optimiser.init(network)
        for number in range(told["at"] + 1):
            chance = np.random.default_rng([seed, member, number])
            at = every[chance.integers(0, len(every), (config.block, config.batch))]
            state, _ = block(state, arrays, at)
        best = state[1]
    return best, told


def _amplified(network: Network, gain: Floats) -> Network:
    """The network whose outputs are `gain` times as large."""
    factor = jnp.asarray(gain, jnp.float32)

    def larger(leaf: jax.Array) -> jax.Array:
        return leaf * (factor[:, None] if leaf.ndim > 1 else factor)

    out: Network
    if network.tier2 is None:
        out = eqx.tree_at(lambda n: (n.head1.weight, n.head1.bias), network, replace_fn=larger)
        return out
    out = eqx.tree_at(
        lambda n: (n.tier2.head.weight, n.tier2.head.bias), network, replace_fn=larger
    )
    if network.tier2.skip is not None:
        out = eqx.tree_at(lambda n: n.tier2.skip, out, replace_fn=larger)
    return out


class _Keeper:
    """The checkpoint: arrays of the state, written whole beside the old one and then renamed."""

    EVERY = 1.0  # seconds between two

    def __init__(self, path: str | Path | None, frame: Frame, config: Config, seed: int) -> None:
        self.path = None if path is None else Path(path)
        self.saved = time.monotonic()
        digest = hashlib.sha256(repr((config, seed, frame.features, frame.columns)).encode())
        digest.update(np.ascontiguousarray(frame.matrix).tobytes())
        self.identity = digest.hexdigest()
        self.kept: dict[str, Any] = {}
        if self.path is not None and self.path.exists():
            self.kept = self._read(self.path)

    def _read(self, path: Path) -> dict[str, Any]:
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                kept: dict[str, Any] = {name: file[name] for name in file.files}
            kept["about"] = json.loads(str(kept["about"]))
            identity = kept["about"]["identity"]
        except Exception as error:  # a torn file raises many kinds
            raise ValueError(f"{path}: expected a checkpoint, got {error}") from None
        if identity != self.identity:
            raise ValueError(
                f"{path}: expected a checkpoint of these readings, options and seed, got another;"
                " remove it to start anew"
            )
        return kept

    def load(self, member: int, state: Any, best: Any, told: dict[str, Any]) -> Any:
        """The state of a member as it was kept, else as it is given."""
        about = self.kept.get("about", {}).get("members", {}).get(str(member))
        if about is None:
            return state, best, told
        leaves, tree = jax.tree.flatten((state, best))
        kept = [
            jnp.asarray(self.kept[f"{member}/{i}"], leaf.dtype) for i, leaf in enumerate(leaves)
        ]
        state, best = jax.tree.unflatten(tree, kept)
        return state, best, about

    def save(
        self, member: int, state: Any, best: Any, told: dict[str, Any], *, force: bool = False
    ) -> None:
        """Keep the state, unless it was kept a moment ago."""
        now = time.monotonic()
        if self.path is None or (not force and now - self.saved < self.EVERY):
            return
        about = self.kept.setdefault("about", {"identity": self.identity, "members": {}})
        about["members"][str(member)] = told
        for i, leaf in enumerate(jax.tree.leaves((state, best))):
            self.kept[f"{member}/{i}"] = np.asarray(leaf)
        arrays = {name: value for name, value in self.kept.items() if name != "about"}
        file = io.BytesIO()
        np.savez(file, about=np.asarray(json.dumps(about)), **arrays)
        write_whole(self.path, file.getvalue())
        self.saved = now

    def remove(self) -> None:
        """Training is over."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)
