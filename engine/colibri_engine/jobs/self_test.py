"""Try the kernels of one instruction set against the scalar ones, bit for bit.

`self-test` alone writes `VARIANTS {json}`: those of this build and those this processor runs, both
best first, the processor and the one in use. `self-test NAME` writes `RESULT {json}` with how many
operations were compared and the names of those that differ; an instruction set that the processor
lacks is an error. One process for each, as one that runs what it should not ends its process.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine import kernels, machine
from colibri_engine.config import read_isa
from colibri_engine.kernels import Expert, Linear, Matrix, Rows, Vector

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from colibri_engine.jobs.base import JobOutput

    Array = npt.NDArray[np.float32]

_REFERENCE: Final = "scalar"
# One value, a vector and one more, three vectors and a tail: outputs and inputs.
_SIZES: Final = ((1, 1), (17, 64), (33, 65), (80, 224))
_ROWS: Final = (1, 9)  # one row and several go different ways
_GROUP: Final = 32
_NUMERICS: Final = ("default", "fast", "float")
_EPS: Final = 1e-5


def run(argv: list[str], output: JobOutput) -> None:
    """Tell the variants, or try the one named."""
    if not argv:
        wanted = read_isa()
        if wanted is not None:
            kernels.set_isa(wanted)
        body = {
            "cpu": machine.cpu_name(),
            "built": kernels.built_isas(),
            "available": kernels.available_isas(),
            "active": kernels.active_isa(),
        }
        output.say("VARIANTS", json.dumps(body, ensure_ascii=False))
        return
    kernels.set_isa(argv[0])
    found = results()
    kernels.set_isa(_REFERENCE)
    differing = differences(results(), found)
    output.say("RESULT", json.dumps({"compared": len(found), "differing": differing}))


def differences(wanted: dict[str, bytes], found: dict[str, bytes]) -> list[str]:
    """Return the names of operations whose bits differ."""
    assert wanted.keys() == found.keys()
    return [name for name, bits in found.items() if bits != wanted[name]]


def results() -> dict[str, bytes]:
    """Return what the kernels in use make of small inputs, by the name of the operation."""
    rng = np.random.default_rng(1)
    found: dict[str, bytes] = {}
    for outputs, inputs in _SIZES:
        for rows in _ROWS:
            x = rng.standard_normal((rows, inputs)).astype(np.float32)
            where = f"{rows}x{inputs} by {outputs}"
            for kind, matrix in _matrices(rng, outputs, inputs).items():
                for numerics in _NUMERICS if kind.startswith("int") else ("default",):
                    layer = Linear([matrix], None, numerics)
                    name = f"{kind} {numerics}, {where}"
                    found[name] = _after(x, outputs, _linear(layer))
            found[f"norm, {where}"] = _after(x, inputs, _norm(rng, inputs))
            found[f"expert, {where}"] = _after(x, inputs, _expert(rng, outputs, inputs))
    return found


def _matrices(rng: np.random.Generator, outputs: int, inputs: int) -> dict[str, Matrix]:
    values = rng.standard_normal((outputs, inputs)).astype(np.float32)
    bits = (values.view(np.uint32) >> 16).astype(np.uint16)
    return {
        "int4": _integers(rng, outputs, inputs, 4),
        "int8": _integers(rng, outputs, inputs, 8),
        "f32": Matrix.from_float(values),
        "f16": Matrix.from_float(values.astype(np.float16)),
        "bf16": Matrix.from_float(bits, bf16=True),
    }


def _integers(rng: np.random.Generator, outputs: int, inputs: int, bits: int) -> Matrix:
    codes = rng.integers(0, 1 << bits, (outputs, inputs), dtype=np.uint8)
    groups = -(-inputs // _GROUP)
    scales = rng.uniform(0.01, 0.02, (outputs, groups)).astype(np.float16)
    return Matrix.from_codes(codes, scales, 1 << (bits - 1), None, bits=bits, group=_GROUP)


def _linear(layer: Linear) -> Callable[[Rows, Rows], None]:
    return lambda x, out: kernels.linear(x, layer, out)


def _norm(rng: np.random.Generator, width: int) -> Callable[[Rows, Rows], None]:
    weight = Vector(rng.standard_normal(width).astype(np.float32))
    return lambda x, out: kernels.rms_norm(x, weight, _EPS, out)


def _expert(rng: np.random.Generator, inner: int, width: int) -> Callable[[Rows, Rows], None]:
    up = [_integers(rng, inner, width, 4) for _ in range(2)]
    expert = Expert(Linear(up), Linear([_integers(rng, width, inner, 4)]))
    return lambda x, out: kernels.mlp(x, expert, out, add=False)


def _after(x: Array, width: int, apply: Callable[[Rows, Rows], None]) -> bytes:
    """Return the bits of what an operation writes."""
    given, out = Rows(len(x), x.shape[1]), Rows(len(x), width)
    given.rows = out.rows = len(x)
    given.array[:] = x
    apply(given, out)
    return out.array.tobytes()
