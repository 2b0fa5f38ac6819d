"""The networks of paper 003 in JAX and equinox: stacks of GRU layers, in one tier or two.

`Shape` says which network; `Network` is one, as an equinox module; `forward` runs it on windows
that are scaled already. Equations (1) to (4) of the paper, with a bias (trap P4):

    r = sigmoid(x W_r + h U_r + b_r)
    z = sigmoid(x W_z + h U_z + b_z)
    c = tanh(x W_c + (r * h) U_c + b_c)
    h = (1 - z) * h + z * c
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt

__all__ = ["Network", "Shape", "forward", "make", "weights_of"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of a network, for a window of `machine + workers * features` columns.

    Attributes
    ----------
    window
        Time steps of a window.
    machine, workers, features
        Columns of the machine, workers on it, and columns of each worker; the first is the target.
    own, common
        How many of the first columns of a worker, and of the machine, tier 2 reads.
    layers1, hidden1, width
        Tier 1 over all columns: its GRU layers (0: no tier 1), their units, its outputs. Without a
        tier 2 the outputs are the workers' forecasts: the flat network.
    layers2, hidden2
        Tier 2, one for every worker: its GRU layers (0: no tier 2) and their units.
    shared
        Tier 2 has the same weights for all workers.
    residual
        The forecast is the last value plus the output; else the sigmoid of the output.
    skip
        A linear layer beside tier 2, from the columns it reads to the output.
    relative
        Tier 2 also reads how far the target is from its last value in the window.
    """

    window: int
    machine: int
    workers: int
    features: int
    own: int
    common: int
    layers1: int
    hidden1: int
    width: int
    layers2: int
    hidden2: int
    shared: bool
    residual: bool
    skip: bool
    relative: bool

    @property
    def columns(self) -> int:
        """Columns of a window."""
        return self.machine + self.workers * self.features

    @property
    def read(self) -> int:
        """Columns that tier 2 reads besides the outputs of tier 1."""
        return self.own + self.common + self.relative

    @property
    def networks2(self) -> int:
        """How many tier-2 networks there are."""
        return (1 if self.shared else self.workers) if self.layers2 else 0


class Layer(eqx.Module):
    """One GRU layer; gates in the order r, z, c."""

    inputs: jax.Array  # I x 3H
    hidden: jax.Array  # H x 3H
    bias: jax.Array  # 3H


class Head(eqx.Module):
    """A linear layer."""

    weight: jax.Array
    bias: jax.Array


class Tier2(eqx.Module):
    """Layers, output and skip of tier 2; every leaf has one row per network."""

    layers: list[Layer]
    head: Head
    skip: jax.Array | None


class Network(eqx.Module):
    """All weights."""

    tier1: list[Layer]
    head1: Head | None
    tier2: Tier2 | None


def make(shape: Shape, key: jax.Array) -> Network:
    """Random weights, as usual for the sizes of the layers; the last head starts at zero."""
    keys = iter(jax.random.split(key, 64))

    def drawn(*size: int, fan: int) -> jax.Array:
        bound = 1 / np.sqrt(fan)
        return jax.random.uniform(next(keys), size, jnp.float32, -bound, bound)

    def stack(layers: int, inputs: int, hidden: int, *many: int) -> list[Layer]:
        return [
            Layer(
                drawn(*many, inputs if i == 0 else hidden, 3 * hidden, fan=hidden),
                drawn(*many, hidden, 3 * hidden, fan=hidden),
                jnp.zeros((*many, 3 * hidden), jnp.float32),
            )
            for i in range(layers)
        ]

    s, tier1, head1, tier2 = shape, [], None, None
    if s.layers1:
        tier1 = stack(s.layers1, s.columns, s.hidden1)
        weight = drawn(s.hidden1, s.width, fan=s.hidden1)
        head1 = Head(weight if s.layers2 or not s.residual else 0 * weight, jnp.zeros(s.width))
    if s.layers2:
        n, inputs = s.networks2, s.read + (s.width if s.layers1 else 0)
        weight = drawn(n, s.hidden2, fan=s.hidden2)
        tier2 = Tier2(
            stack(s.layers2, inputs, s.hidden2, n),
            Head(0 * weight if s.residual else weight, jnp.zeros(n)),
            jnp.zeros((n, s.window * s.read)) if s.skip else None,
        )
    return Network(tier1, head1, tier2)


def run(layer: Layer, x: jax.Array) -> jax.Array:
    """Outputs of a layer at all steps: (steps, batch, inputs) -> (steps, batch, hidden)."""
    size = layer.bias.shape[-1] // 3
    projected = x @ layer.inputs + layer.bias
    gates, candidate = layer.hidden[:, : 2 * size], layer.hidden[:, 2 * size :]

    def step(h: jax.Array, a: jax.Array) -> tuple[jax.Array, jax.Array]:
        rz = jax.nn.sigmoid(a[:, : 2 * size] + h @ gates)
        r, z = rz[:, :size], rz[:, size:]
        c = jnp.tanh(a[:, 2 * size :] + (r * h) @ candidate)
        h = (1 - z) * h + z * c
        return h, h

    first = jnp.zeros((x.shape[1], size), jnp.float32)
    return jax.lax.scan(step, first, projected)[1]


def forward(network: Network, shape: Shape, windows: jax.Array) -> jax.Array:
    """Outputs for scaled windows: (batch, window, columns) -> (batch, workers)."""
    s, batch = shape, windows.shape[0]
    x = jnp.swapaxes(windows, 0, 1)  # steps first
    outputs = None
    if network.head1 is not None:
        h = x
        for layer in network.tier1:
            h = run(layer, h)
        outputs = h @ network.head1.weight + network.head1.bias
        if network.tier2 is None:
            return outputs[-1] if s.residual else jax.nn.sigmoid(outputs[-1])
        outputs = jax.nn.sigmoid(outputs)
    assert network.tier2 is not None
    own = x[:, :, s.machine :].reshape(s.window, batch, s.workers, s.features)[..., : s.own]
    parts = [own]
    if s.common:
        common = x[:, :, None, : s.common]
        parts.append(jnp.broadcast_to(common, (s.window, batch, s.workers, s.common)))
    if s.relative:
        parts.append(own[..., :1] - own[-1:, ..., :1])
    read = jnp.concatenate(parts, axis=-1)
    inputs = read
    if outputs is not None:
        tiled = jnp.broadcast_to(outputs[:, :, None], (s.window, batch, s.workers, s.width))
        inputs = jnp.concatenate([tiled, read], axis=-1)
    if s.shared:
        one = jax.tree.map(lambda leaf: leaf[0], network.tier2)
        flat = inputs.reshape(s.window, batch * s.workers, -1)
        flat_read = read.reshape(s.window, batch * s.workers, s.read)
        out = _tier2(one, flat, flat_read).reshape(batch, s.workers)
    else:
        each = jax.vmap(_tier2, in_axes=(0, 2, 2), out_axes=1)
        out = each(network.tier2, inputs, read)
    return out if s.residual else jax.nn.sigmoid(out)


def _tier2(tier: Tier2, inputs: jax.Array, read: jax.Array) -> jax.Array:
    h = inputs
    for layer in tier.layers:
        h = run(layer, h)
    out = h[-1] @ tier.head.weight + tier.head.bias
    if tier.skip is not None:
        out = out + jnp.swapaxes(read, 0, 1).reshape(read.shape[1], -1) @ tier.skip
    return out


def weights_of(network: Network, shape: Shape) -> npt.NDArray[np.float32]:
    """All weights in the order of the weights file: tier 1, its head, then every tier 2."""
    parts: list[Any] = []
    for layer in network.tier1:
        parts += [layer.inputs, layer.hidden, layer.bias]
    if network.head1 is not None:
        parts += [network.head1.weight, network.head1.bias]
    for n in range(shape.networks2):
        tier = jax.tree.map(lambda leaf, n=n: leaf[n], network.tier2)
        for layer in tier.layers:
            parts += [layer.inputs, layer.hidden, layer.bias]
        parts += [tier.head.weight, tier.head.bias]
        if tier.skip is not None:
            parts.append(tier.skip)
    return np.concatenate([np.asarray(part, np.float32).ravel() for part in parts])
