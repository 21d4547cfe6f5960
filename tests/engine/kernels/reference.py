"""What the kernels must compute, in numpy: once in float64, once to the bit.

The float64 functions come with the sum of magnitudes that their error bound needs. Those named
`exact_` follow docs/numerics.md step by step in float32 and integers, so results must be equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from colibri_engine.kernels import Matrix

if TYPE_CHECKING:
    from collections.abc import Sequence

F32 = npt.NDArray[np.float32]
F64 = npt.NDArray[np.float64]

EPS = float(np.finfo(np.float32).eps)
INPUT_PAD = 64
ACTIVATION_GROUP = {"default": 64, "fast": 32}
ACTIVATION_LIMIT = {"default": np.float32(32512), "fast": np.float32(127)}


# ---- weights ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class IntWeights:
    """Grouped integer weights before packing.

    Args:
        codes: (O, I) uint8.
        scales: (O, ceil(I / group)) float16 or float32.
        zero: Zero point, or None with mins.
        mins: Like scales, or None with a zero point.
        bits: 4 or 8.
        group: Inputs per scale.
    """

    codes: npt.NDArray[np.uint8]
    scales: npt.NDArray[np.floating]
    zero: int | None
    mins: npt.NDArray[np.floating] | None
    bits: int
    group: int

    def pack(self) -> Matrix:
        """Return the packed matrix."""
        return Matrix.from_codes(
            self.codes, self.scales, self.zero, self.mins, bits=self.bits, group=self.group
        )

    def _per_input(self, values: npt.NDArray[np.floating]) -> F32:
        wide = np.repeat(values.astype(np.float32), self.group, axis=1)
        return wide[:, : self.codes.shape[1]]

    def unpack(self) -> F32:
        """Return the float32 values, rounded as the file formats define them."""
        scales = self._per_input(self.scales)
        if self.mins is None:
            return scales * (self.codes.astype(np.float32) - np.float32(self.zero or 0))
        return scales * self.codes.astype(np.float32) + self._per_input(self.mins)

    def fused(self) -> F32:
        """Return the float32 values as "float" numerics decode them: rounded once."""
        if self.mins is None:
            return self.unpack()
        scales, mins = self._per_input(self.scales), self._per_input(self.mins)
        return fma(scales, self.codes.astype(np.float32), mins)


def fp8_matrix(noise: F32, group: int) -> Matrix:
    """Return E4M3 weights whose codes and scales are drawn from the bits and sizes of noise."""
    codes = (noise.view(np.uint32) >> 12).astype(np.uint8)
    codes[codes & 0x7F == 0x7F] -= 1
    return Matrix.from_fp8(codes, np.ascontiguousarray(np.abs(noise[:, ::group])), group=group)


def random_int_weights(
    rng: np.random.Generator,
    outputs: int,
    inputs: int,
    *,
    bits: int = 4,
    group: int = 32,
    with_mins: bool = False,
    dtype: type[np.floating] = np.float16,
) -> IntWeights:
    """Return random weights of about unit size times 1 / sqrt(inputs)."""
    groups = -(-inputs // group)
    size = 1 / (2 ** (bits - 1) * inputs**0.5)
    scales = rng.uniform(-2 * size, 2 * size, (outputs, groups)).astype(dtype)
    mins = None
    if with_mins:
        mins = rng.uniform(-0.5, 0.5, (outputs, groups)).astype(dtype)
    codes = rng.integers(0, 2**bits, (outputs, inputs)).astype(np.uint8)
    zero = None if with_mins else int(rng.integers(0, 2**bits))
    return IntWeights(codes, scales, zero, mins, bits, group)


# ---- float32 steps ------------------------------------------------------------------------------


def fma(a: npt.ArrayLike, b: npt.ArrayLike, c: npt.ArrayLike) -> F32:
    """Return a * b + c of float32 values, rounded once.

    The product is exact in float64. The sum is rounded to odd there, after which the rounding to
    float32 is the only one that counts.
    """
    product = np.asarray(a, np.float32).astype(np.float64) * np.asarray(b, np.float32)
    addend = np.asarray(c, np.float32).astype(np.float64)
    total = product + addend
    back = total - product
    error = (product - (total - back)) + (addend - back)  # exact: Knuth's two-sum
    is_even = (total.view(np.int64) & 1) == 0
    towards = np.where(error > 0, np.inf, -np.inf)
    total = np.where((error != 0) & is_even, np.nextafter(total, towards), total)
    return total.astype(np.float32)


def quantize(x: F32, numerics: str) -> tuple[npt.NDArray[np.int64], F32]:
    """Return values (N, padded) and scales (N, padded / group) of quantized activations."""
    group, limit = ACTIVATION_GROUP[numerics], ACTIVATION_LIMIT[numerics]
    padded = -(-x.shape[1] // INPUT_PAD) * INPUT_PAD
    wide = np.zeros((len(x), padded), np.float32)
    wide[:, : x.shape[1]] = x
    grouped = wide.reshape(len(x), -1, group)
    scales = np.abs(grouped).max(axis=2) / limit
    divisors = np.where(scales > 0, scales, np.float32(1))
    values = np.rint(grouped / divisors[:, :, None])
    return values.reshape(len(x), padded).astype(np.int64), scales


def kernel_group(group: int, numerics: str) -> int:
    """Return how many inputs are summed as exact integers."""
    return next(size for size in (ACTIVATION_GROUP[numerics], 32, 16) if group % size == 0)


def exact_int_linear(x: F32, w: IntWeights, numerics: str) -> F32:
    """Return x W^T (N, O) with quantized activations, to the bit."""
    values, act_scales = quantize(x, numerics)
    size = kernel_group(w.group, numerics)
    outputs, inputs = w.codes.shape
    codes = np.zeros((outputs, values.shape[1]), np.int64)
    codes[:, :inputs] = w.codes.astype(np.int64) - (w.zero or 0)
    acc = np.zeros((len(x), outputs), np.float32)
    for begin in range(0, inputs, size):
        part = slice(begin, begin + size)
        act_scale = act_scales[:, begin // ACTIVATION_GROUP[numerics], None]
        sums = values[:, part] @ codes[:, part].T
        scale = w.scales[:, begin // w.group].astype(np.float32) * act_scale
        acc = fma(sums.astype(np.float32), scale, acc)
        if w.mins is not None:
            low = w.mins[:, begin // w.group].astype(np.float32) * act_scale
            acc = fma(values[:, part].sum(axis=1, keepdims=True).astype(np.float32), low, acc)
    return acc


def exact_float_linear(x: F32, w: F32) -> F32:
    """Return x W^T (N, O) with four accumulators over the input index, to the bit."""
    acc = [np.zeros((len(x), len(w)), np.float32) for _ in range(4)]
    for k in range(w.shape[1]):
        acc[k % 4] = fma(w[None, :, k], x[:, k, None], acc[k % 4])
    return (acc[0] + acc[1]) + (acc[2] + acc[3])


def exact_weighted_sum(start: F32, weights: Sequence[np.float32], parts: Sequence[F32]) -> F32:
    """Return start + the weighted parts, added in order, to the bit."""
    total = start
    for weight, part in zip(weights, parts, strict=True):
        total = fma(weight, part, total)
    return total


# ---- float64 ------------------------------------------------------------------------------------


def linear(x: F32, w: F32) -> tuple[F64, F64]:
    """Return x W^T and the sums of magnitudes |x| |W|^T, both (N, O)."""
    return x.astype(np.float64) @ w.T.astype(np.float64), np.abs(x.astype(np.float64)) @ np.abs(w.T)


def rms_norm(x: F32, weight: F32, eps: float) -> F64:
    """Return x / rms(x) * weight."""
    wide = x.astype(np.float64)
    mean = np.square(wide).mean(axis=-1, keepdims=True)
    normed: F64 = wide / np.sqrt(mean + np.float32(eps)) * weight
    return normed


def silu(z: npt.NDArray[np.floating]) -> F64:
    """Return z / (1 + exp(-z))."""
    wide = z.astype(np.float64)
    with np.errstate(over="ignore"):
        gated: F64 = wide / (1 + np.exp(-wide))
    return gated


def clamped_unit(gate: F64, up: F64, limit: float, alpha: float) -> F64:
    """Return (u + 1) g sigmoid(alpha g) with g = min(gate, limit), u = up within +-limit."""
    g, u = np.minimum(gate, limit), np.clip(up, -limit, limit)
    gated: F64 = (u + 1) * g / (1 + np.exp(-alpha * g))
    return gated


@dataclass(frozen=True)
class RopeRule:
    """A rotary embedding.

    Args:
        rotated: Leading channels of a head that turn.
        theta: Base of the frequencies.
        scale: Factor on cosines and sines.
        interleaved: Pairs are neighbours, not halves.
    """

    rotated: int
    theta: float = 10_000.0
    scale: float = 1.0
    interleaved: bool = False

    @property
    def inv_freq(self) -> list[float]:
        """(rotated / 2,) frequencies."""
        return [self.theta ** (-2.0 * j / self.rotated) for j in range(self.rotated // 2)]

    def _pairs(self) -> tuple[slice, slice]:
        if self.interleaved:
            return slice(0, self.rotated, 2), slice(1, self.rotated, 2)
        return slice(0, self.rotated // 2), slice(self.rotated // 2, self.rotated)

    def rotate(self, heads: F32, positions: npt.NDArray[np.int64]) -> F64:
        """Return heads (N, H, D), those of row n turned to positions[n]."""
        out = heads.astype(np.float64)
        angles = positions[:, None, None] * np.array(self.inv_freq)
        cos, sin = np.cos(angles) * self.scale, np.sin(angles) * self.scale
        first, second = self._pairs()
        a, b = out[..., first].copy(), out[..., second].copy()
        out[..., first] = a * cos - b * sin
        out[..., second] = b * cos + a * sin
        return out


@dataclass(frozen=True)
class AttentionRules:
    """What an attention has beyond the plain one, see docs/numerics.md.

    Args:
        window: How many keys a query sees, its own included; 0 for all.
        sinks: (H,) scores of keys without a value.
        profiles: (P, extent) biases by distance.
        log_floor: Positions from which queries grow; 0: they do not.
        log_alpha: How fast they grow.
    """

    window: int = 0
    sinks: F32 | None = None
    profiles: F32 | None = None
    log_floor: float = 0.0
    log_alpha: float = 0.0

    def query_scales(self, positions: npt.NDArray[np.int64]) -> F64:
        """Return the factor of each query, (N,)."""
        if not self.log_floor:
            return np.ones(len(positions))
        return 1 + self.log_alpha * np.log(np.maximum((positions + 1) / self.log_floor, 1))

    def biases(self, mix: F64, distances: npt.NDArray[np.int64]) -> tuple[F64, F64]:
        """Return biases and the sums of their magnitudes, both (N, H, S).

        Args:
            mix: (N, H, P) weights of the profiles.
            distances: (N, S) from query to key.
        """
        assert self.profiles is not None
        extent = self.profiles.shape[1]
        inside = (distances >= 0) & (distances < extent)
        picked = self.profiles.astype(np.float64)[:, np.clip(distances, 0, extent - 1)]
        picked *= inside  # (P, N, S)
        return (
            np.einsum("nhp,pns->nhs", mix, picked),
            np.einsum("nhp,pns->nhs", np.abs(mix), np.abs(picked)),
        )


def attention(
    q: npt.NDArray[np.floating],
    k: F32,
    v: F32,
    start: int,
    scale: float,
    *,
    rules: AttentionRules | None = None,
    mix: F32 | None = None,
) -> tuple[F64, F64]:
    """Return causal attention and an error bound for float32, both (N, H, D).

    Args:
        q: (N, H, D) queries at positions start, start + 1, ...
        k: (S, K, D) keys from position 0 on.
        v: (S, K, D) values.
        start: Position of the first query.
        scale: Factor on the scores.
        rules: Options.
        mix: (N, H, P) weights of the relative profiles, where the rules have some.

    The bound: a score errs by at most (D + P + 6) eps times the sum of its terms' magnitudes, which
    moves its weight by that factor; exp adds 2 eps, the sums over S positions S eps each.
    """
    rules = rules or AttentionRules()
    heads_per_kv = q.shape[1] // k.shape[1]
    keys = np.repeat(k.astype(np.float64), heads_per_kv, axis=1)
    values = np.repeat(v.astype(np.float64), heads_per_kv, axis=1)
    positions = start + np.arange(len(q))
    factors = rules.query_scales(positions)[:, None, None]
    wide = q * factors
    scores = scale * np.einsum("nhd,shd->nhs", wide, keys)
    magnitudes = abs(scale) * np.einsum("nhd,shd->nhs", np.abs(wide), np.abs(keys))
    distances = positions[:, None] - np.arange(len(k))  # (N, S)
    num_profiles = 0
    if mix is not None:
        num_profiles = mix.shape[2]
        biases, bias_magnitudes = rules.biases(mix * factors, distances)
        scores += biases
        magnitudes += bias_magnitudes
    hidden = distances < 0
    if rules.window:
        hidden |= distances >= rules.window
    scores[np.broadcast_to(hidden[:, None], scores.shape)] = -np.inf
    magnitudes[np.broadcast_to(hidden[:, None], scores.shape)] = 0
    if rules.sinks is not None:
        sinks = np.broadcast_to(rules.sinks[None, :, None], (*scores.shape[:2], 1))
        scores = np.concatenate([scores, sinks], axis=2)
    weights = np.exp(scores - scores.max(axis=2, keepdims=True))
    weights /= weights.sum(axis=2, keepdims=True)
    weights = weights[..., : len(k)]
    out = np.einsum("nhs,shd->nhd", weights, values)
    worst = magnitudes.max(axis=2, keepdims=True)
    relative = 2 * (q.shape[2] + num_profiles + 6) * EPS * worst + (2 * len(k) + 12) * EPS
    return out, relative * np.einsum("nhs,shd->nhd", weights, np.abs(values))


@dataclass(frozen=True)
class RouterCase:
    """A router rule, see docs/numerics.md."""

    num_choices: int
    scoring: str = "sigmoid"
    normalize: bool = True
    scale: float = 1.0
    num_groups: int = 1
    kept_groups: int = 1
    num_shared: int = 0


def route(logits: F32, bias: F32 | None, rule: RouterCase) -> tuple[npt.NDArray[np.int32], F64]:
    """Return ids and weights, best first, ties to the lower id, the shared experts last.

    Both are (N, num_choices + num_shared).
    """
    wide = logits.astype(np.float64)
    if rule.scoring == "sigmoid":
        scores = 1 / (1 + np.exp(-wide))
    elif rule.scoring == "softmax":
        scores = np.exp(wide - wide.max(axis=1, keepdims=True))
        scores /= scores.sum(axis=1, keepdims=True)
    else:
        scores = wide
    num_routed = logits.shape[1] - rule.num_shared
    selection = scores[:, :num_routed]
    selection = selection if bias is None else selection + bias
    selection = np.where(np.isnan(selection), -np.inf, selection)
    if rule.num_groups > 1:
        grouped = selection.reshape(len(logits), rule.num_groups, -1)
        best_two = np.sort(grouped, axis=2)[:, :, -2:].sum(axis=2)
        order = np.argsort(-best_two, axis=1, kind="stable")[:, rule.kept_groups :]
        for row, dropped in zip(grouped, order, strict=True):
            row[dropped] = -np.inf
        selection = grouped.reshape(logits.shape)
    ids = np.argsort(-selection, axis=1, kind="stable")[:, : rule.num_choices]
    shared = np.arange(num_routed, logits.shape[1])
    ids = np.concatenate([ids, np.broadcast_to(shared, (len(ids), len(shared)))], axis=1)
    weights = np.take_along_axis(scores, ids, axis=1)
    if rule.scoring == "top_softmax":
        weights = np.exp(weights - weights.max(axis=1, keepdims=True))
        weights /= weights.sum(axis=1, keepdims=True)
    if rule.normalize:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return ids.astype(np.int32), weights * rule.scale
