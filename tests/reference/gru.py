"""The forecast of a predictor, from its definition: plain NumPy in float64, step by step."""

import numpy as np


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


class Weights:
    """Hands out the weights of the file one array after the other."""

    def __init__(self, values):
        self.values, self.at = np.asarray(values, np.float64), 0

    def __call__(self, *shape):
        size = int(np.prod(shape))
        out = self.values[self.at : self.at + size].reshape(shape)
        self.at += size
        return out


def layers_of(take, layers, inputs, hidden):
    sizes = [inputs, *[hidden] * (layers - 1)]
    return [(take(i, 3 * hidden), take(hidden, 3 * hidden), take(3 * hidden)) for i in sizes]


def gru(layers, rows):
    """Equations (1) to (4), one step at a time: (steps, inputs) -> (steps, hidden)."""
    for w, u, b in layers:
        n = len(b) // 3
        h, out = np.zeros(n), []
        for x in rows:
            r = sigmoid(x @ w[:, :n] + h @ u[:, :n] + b[:n])
            z = sigmoid(x @ w[:, n : 2 * n] + h @ u[:, n : 2 * n] + b[n : 2 * n])
            c = np.tanh(x @ w[:, 2 * n :] + (r * h) @ u[:, 2 * n :] + b[2 * n :])
            h = (1 - z) * h + z * c
            out.append(h)
        rows = np.array(out)
    return rows


def ready(s, scales, window):
    """Every column filled, logged, scaled and clipped; and the last targets before clipping."""
    columns, last = [], []
    count = (window.shape[1] - s["machine"]) // s["features"]
    per_worker = scales[s["machine"] :]
    scales = [*scales[: s["machine"]], *(per_worker * count if s["elastic"] else per_worker)]
    for i, (log, unit, offset, scale) in enumerate(scales):
        values = window[:, i].tolist()
        known = [v for v in values if np.isfinite(v)]
        now, filled = known[0] if known else None, []
        for v in values:
            now = v if np.isfinite(v) else now
            filled.append(now)
        if not known:
            u = [offset] * len(values)
        else:
            u = [np.log1p(max(v, 0) / unit) if log else v for v in filled]
        columns.append([min(max((v - offset) * scale, s["low"]), s["high"]) for v in u])
        if i >= s["machine"] and (i - s["machine"]) % s["features"] == 0:
            last.append(u[-1] if known else np.nan)
    return np.array(columns).T, np.array(last), scales


def member(s, take, x, count):
    """Outputs of one member for all workers."""
    outputs = None
    if s["layers1"]:
        columns = s["machine"] + count * s["features"]
        stack = layers_of(take, s["layers1"], columns, s["hidden1"])
        weight, bias = take(s["hidden1"], s["width"]), take(s["width"])
        outputs = gru(stack, x) @ weight + bias
        if not s["layers2"]:
            return outputs[-1]
        outputs = sigmoid(outputs)
    read = s["own"] + s["common"] + s["relative"]
    out, one = [], None
    for worker in range(count):
        at = s["machine"] + worker * s["features"]
        parts = [x[:, at : at + s["own"]], x[:, : s["common"]]]
        if s["relative"]:
            parts.append(x[:, at : at + 1] - x[-1, at])
        own = np.concatenate(parts, axis=1)
        inputs = own if outputs is None else np.concatenate([outputs, own], axis=1)
        if one is None or not s["shared"]:
            stack = layers_of(take, s["layers2"], inputs.shape[1], s["hidden2"])
            one = stack, take(s["hidden2"]), take(1)
            one = (*one, take(s["window"] * read) if s["skip"] else None)
        stack, weight, bias, skip = one
        value = gru(stack, inputs)[-1] @ weight + bias[0]
        out.append(value + (own.ravel() @ skip if skip is not None else 0))
    return np.array(out)


def forecast(predictor, window):
    """The definition, in float64: what the networks give, and the forecast."""
    window = np.asarray(window, np.float64)
    s, scales = predictor.sizes, predictor._core.scales
    x, last, scales = ready(s, scales, window)
    take, count = Weights(predictor._core.weights), len(last)
    every = [member(s, take, x, count) for _ in range(s["members"])]
    output = np.mean(every if s["residual"] else [sigmoid(o) for o in every], axis=0)
    result = []
    for w in range(count):
        log, unit, offset, scale = scales[s["machine"] + w * s["features"]]
        u = output[w] / scale + (last[w] if s["residual"] else offset + 0 * last[w])
        result.append(unit * np.expm1(u) if log else u)
    return output, np.array(result)
