"""How fast this machine computes and reads: measured with the engine's own kernels and reads.

Short measurements, of weights that are larger than the processor's caches: a decoded token reads
each weight once from memory. Rates are the best of several, in bytes (one row) and in multiply-adds
(many rows) per second. Knows no model but the shape of its experts.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from colibri_engine import kernels
from colibri_engine.kernels import (
    Choices,
    Expert,
    ExpertTable,
    Linear,
    Matrix,
    Router,
    Rows,
    linear,
    moe,
    route,
)
from colibri_engine.quant.tiles import TileLayout

if TYPE_CHECKING:
    from collections.abc import Callable

_INPUTS: Final = 2048
_LARGE: Final = 96 << 20  # bytes read by one measurement: no cache holds them
_BATCH_OUTPUTS: Final = 4096
_BATCH_ROWS: Final = 128
_CORE_OUTPUTS: Final = 256  # a quarter of a megabyte at 4 bits: it stays in a core's own cache
_CALL_OUTPUTS: Final = 64  # a matrix so small that only the call counts
_MIN_REPEATS: Final = 5
_MAX_SECONDS: Final = 0.4  # of one measurement, its first five repeats excepted
_GROUP: Final = 64
_CODE: Final = {4: 0x77, 8: 0x7F}  # bytes of weights: any will do


class Rate(NamedTuple):
    """What weights of one kind give.

    Args:
        decode: Bytes per second for one row, from memory.
        batch: Multiply-adds per second for many rows.
        core: Bytes per second and thread for one row, from the caches.
    """

    decode: float
    batch: float
    core: float


class ExpertShape(NamedTuple):
    """Routed experts as they are computed.

    Args:
        kind: Of most of their weights.
        hidden_size: Inputs.
        width: Outputs of gate and of up.
        per_token: Experts of a row.
        num_experts: Experts there are.
    """

    kind: str
    hidden_size: int
    width: int
    per_token: int
    num_experts: int


def measure_kind(kind: str, numerics: str) -> Rate:
    """Measure one kind of weight with the threads the kernels have now.

    Args:
        kind: One of `weight_forms.KINDS`.
        numerics: How activations meet the weights.
    """
    sample = _matrix(kind, _BATCH_OUTPUTS, _INPUTS)
    copies = max(1, _LARGE // sample.nbytes)
    whole = Linear([_matrix(kind, _BATCH_OUTPUTS * copies, _INPUTS)], None, numerics)
    x, out = _rows(1, _INPUTS), Rows(1, _BATCH_OUTPUTS * copies)
    decode = whole.nbytes / _seconds(lambda: linear(x, whole, out))
    layer = Linear([sample], None, numerics)
    many, outs = _rows(_BATCH_ROWS, _INPUTS), Rows(_BATCH_ROWS, _BATCH_OUTPUTS)
    batch = _BATCH_ROWS * _INPUTS * _BATCH_OUTPUTS / _seconds(lambda: linear(many, layer, outs))
    return Rate(decode, batch, _core_rate(kind, numerics))


def _core_rate(kind: str, numerics: str) -> float:
    layer = Linear([_matrix(kind, _CORE_OUTPUTS, _INPUTS)], None, numerics)
    x, out = _rows(1, _INPUTS), Rows(1, _CORE_OUTPUTS)
    threads = kernels.num_threads()
    kernels.set_num_threads(1)
    try:
        return layer.nbytes / _seconds(lambda: linear(x, layer, out))
    finally:
        kernels.set_num_threads(threads)


def measure_experts(shape: ExpertShape, num_rows: int, numerics: str) -> Rate:
    """Measure routed experts: for one row, and for a step of many.

    Args:
        shape: The experts.
        num_rows: Rows of the largest step.
        numerics: How activations meet the weights.
    """
    nbytes = _expert(shape, numerics).nbytes
    count = max(shape.per_token, min(shape.num_experts, -(-_LARGE // nbytes)))
    table = ExpertTable([_expert(shape, numerics).expert for _ in range(count)])
    # As many rows for each expert as it gets when all there are take part.
    rows = max(1, min(num_rows, num_rows * count // shape.num_experts))
    decode = _seconds(_mixture(shape, table, 1))
    batch = _seconds(_mixture(shape, table, rows))
    macs = rows * shape.per_token * 3 * shape.hidden_size * shape.width
    return Rate(shape.per_token * nbytes / decode, macs / batch, _core_rate(shape.kind, numerics))


def measure_call() -> float:
    """Return the seconds of a kernel call that computes next to nothing."""
    layer = Linear([_matrix("int8", _CALL_OUTPUTS, _GROUP)], None)
    x, out = _rows(1, _GROUP), Rows(1, _CALL_OUTPUTS)

    def calls() -> None:
        for _ in range(200):
            linear(x, layer, out)

    return _seconds(calls) / 200


class _Made(NamedTuple):
    expert: Expert
    nbytes: int


def _expert(shape: ExpertShape, numerics: str) -> _Made:
    gate, up = (_matrix(shape.kind, shape.width, shape.hidden_size) for _ in range(2))
    down = _matrix(shape.kind, shape.hidden_size, shape.width)
    expert = Expert(Linear([gate, up], None, numerics), Linear([down], None, numerics))
    return _Made(expert, gate.nbytes + up.nbytes + down.nbytes)


def _mixture(shape: ExpertShape, table: ExpertTable, num_rows: int) -> Callable[[], None]:
    """Return a step of the mixture; every call chooses other experts."""
    x, out = _rows(num_rows, shape.hidden_size), Rows(num_rows, shape.hidden_size)
    out.rows = num_rows
    out.array.fill(0.0)
    logits, choices = Rows(num_rows, len(table)), Choices()
    router = Router(shape.per_token, scoring="sigmoid", normalize=True, scale=1.0, bias=None)
    logits.rows = num_rows
    rng = np.random.default_rng(0)

    def step() -> None:
        logits.array[:] = rng.standard_normal((num_rows, len(table)), np.float32)
        route(logits, router, choices)
        moe(x, table, choices, out)

    return step


def _matrix(kind: str, num_outputs: int, num_inputs: int) -> Matrix:
    if kind == "fp8":
        codes = np.zeros((num_outputs, num_inputs), np.uint8)
        scales = np.ones((num_outputs, -(-num_inputs // _GROUP)), np.float32)
        return Matrix.from_fp8(codes, scales, group=_GROUP)
    if not kind.startswith("int"):
        dtype = {"bf16": np.uint16, "f16": np.float16}.get(kind, np.float32)
        return Matrix.from_float(np.zeros((num_outputs, num_inputs), dtype), bf16=kind == "bf16")
    bits = int(kind.removeprefix("int"))
    layout = TileLayout(num_outputs, num_inputs, bits, _GROUP, 1 << (bits - 1), 4)
    packed = np.full(layout.nbytes, _CODE[bits], np.uint8)
    packed[layout.codes_nbytes :].view(np.float32)[:] = 1.0
    return Matrix.from_packed(
        packed, (num_outputs, num_inputs), layout.zero, bits=bits, group=_GROUP, scale_bytes=4
    )


def _rows(count: int, width: int) -> Rows:
    rows = Rows(count, width)
    rows.rows = count
    rows.array[:] = np.random.default_rng(1).standard_normal((count, width), np.float32)
    return rows


def _seconds(body: Callable[[], None]) -> float:
    """Return the least time of several calls: what others do meanwhile is no matter of a rate."""
    body()  # first touch, and the threads awake
    times: list[float] = []
    while len(times) < _MIN_REPEATS or sum(times) < _MAX_SECONDS:
        started = time.perf_counter()
        body()
        times.append(time.perf_counter() - started)
    return min(times)
