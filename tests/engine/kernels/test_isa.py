"""Which instruction set runs: what is forced is what is executed.

All of them give the same bits, so results cannot tell them apart. Speed can, and so can a
processor that lacks the others: user-mode emulation ends a program at an instruction it does not
know.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import colibri_engine
from colibri_engine import kernels
from colibri_engine.errors import KernelUnavailable
from colibri_engine.kernels import Linear, Rows
from tests.engine.kernels.conftest import rows_of
from tests.engine.kernels.reference import random_int_weights

# Least speed-up over the scalar variant that only real vector code of that width can give.
LEAST_SPEEDUP = {"avx2": 2.0, "avx512": 3.0, "amx": 3.0, "neon": 1.5, "i8mm": 1.5}


def test_names_are_listed_best_first() -> None:
    names = kernels.available_isas()
    assert names[-1] == "scalar"
    assert len(set(names)) == len(names)
    known = ["amx", "avx512", "avx2", "i8mm", "neon", "scalar"]
    assert names == [name for name in known if name in names]


def test_the_forced_set_is_the_active_one(isa: str) -> None:
    assert kernels.active_isa() == isa


def test_a_missing_set_is_refused_by_name() -> None:
    missing = "neon" if platform.machine() == "x86_64" else "avx2"
    with pytest.raises(KernelUnavailable, match=missing) as caught:
        kernels.set_isa(missing)
    assert ", ".join(kernels.available_isas()) in str(caught.value)


def best_seconds(layer: Linear, x: Rows, out: Rows) -> float:
    best = float("inf")
    for _ in range(5):
        start = time.perf_counter()
        kernels.linear(x, layer, out)
        best = min(best, time.perf_counter() - start)
    return best


@pytest.mark.timed
def test_the_forced_set_is_what_runs(rng: np.random.Generator) -> None:
    kernels.set_num_threads(1)
    layer = Linear([random_int_weights(rng, 512, 1024).pack()])
    x, out = rows_of(rng.standard_normal((32, 1024))), Rows(32, 512)
    before, seconds = kernels.active_isa(), {}
    try:
        for name in kernels.available_isas():
            kernels.set_isa(name)
            seconds[name] = best_seconds(layer, x, out)
    finally:
        kernels.set_isa(before)
    for name, least in LEAST_SPEEDUP.items():
        if name in seconds:
            assert seconds["scalar"] / seconds[name] >= least, seconds


# ---- processors that lack the others ------------------------------------------------------------

# Everything a token passes through, once; numpy alone would need seconds of emulation for more.
PROGRAM = """
import sys
import numpy as np
from colibri_engine import kernels as k
from colibri_engine.errors import KernelUnavailable

assert k.available_isas() == sys.argv[1].split(","), k.available_isas()
try:
    k.set_isa("avx512")
    raise SystemExit("avx512 was not refused")
except KernelUnavailable:
    pass
k.set_num_threads(2)
rng = np.random.default_rng(1)

def rows(count, width):
    made = k.Rows(count, width)
    made.rows = count
    made.array[:] = rng.standard_normal((count, width))
    return made

def matrix(outputs, inputs, bits):
    codes = rng.integers(0, 2**bits, (outputs, inputs)).astype(np.uint8)
    scales = np.full((outputs, inputs // 32), 0.01, np.float16)
    return k.Matrix.from_codes(codes, scales, 2 ** (bits - 1), None, bits=bits, group=32)

for name in k.available_isas():
    k.set_isa(name)
    for numerics in ("default", "fast", "float"):
        gate_up = k.Linear([matrix(64, 64, 4), matrix(64, 64, 8)], None, numerics)
        expert = k.Expert(gate_up, k.Linear([matrix(64, 64, 8)], None, numerics))
        for count in (1, 9):
            x, normed, logits = rows(count, 64), k.Rows(count, 64), rows(count, 4)
            k.rms_norm(x, k.Vector(np.ones(64, np.float32)), 1e-5, normed)
            k.mlp(normed, expert, x)
            choices = k.Choices()
            for scoring in ("sigmoid", "softmax"):
                router = k.Router(2, scoring=scoring, normalize=True, scale=1.0, bias=None)
                k.route(logits, router, choices)
            k.moe(normed, k.ExpertTable([expert] * 4), choices, x)
            assert np.isfinite(x.array).all()
    for values in (rng.standard_normal((20, 64)).astype(t) for t in (np.float32, np.float16)):
        k.linear(rows(9, 64), k.Linear([k.Matrix.from_float(values)]), k.Rows(9, 20))
    bits = rng.integers(0, 0x4000, (20, 64)).astype(np.uint16)
    k.linear(rows(9, 64), k.Linear([k.Matrix.from_float(bits, bf16=True)]), k.Rows(9, 20))
    cache, batch = k.KvCache([k.LayerLayout(num_kv_heads=1, head_dim=16)]), k.Batch()
    for interleaved, count in ((False, 70), (True, 1)):
        batch.set([(cache, cache.length, count)])
        qkv, out = rows(count, 64), k.Rows(count, 32)
        k.rope_store(qkv, batch, 0, k.Rope(16, [0.5] * 8, 1.0, interleaved), 2)
        k.attention(qkv, batch, 0, 2, 0.25, out)
        batch.commit()
        assert np.isfinite(out.array).all()
print("ran", k.available_isas())
"""


@pytest.mark.parametrize(
    ("cpu", "isas"), [("Nehalem", "scalar"), ("Haswell", "avx2,scalar")], ids=str
)
def test_an_older_processor_runs_what_it_has(cpu: str, isas: str) -> None:
    """Nehalem has SSE4.2 and no AVX; Haswell has AVX2 and no AVX-512."""
    if platform.machine() != "x86_64":
        pytest.skip("hardware: emulates older x86-64 processors")
    if "LD_PRELOAD" in os.environ:
        pytest.skip("hardware: an instrumented build does not run under emulation")
    emulator = shutil.which("qemu-x86_64")
    if emulator is None:
        pytest.skip("qemu-x86_64 is not installed; install the package qemu-user")
    root = Path(colibri_engine.__file__).parents[1]
    run = subprocess.run(
        [emulator, "-cpu", cpu, sys.executable, "-c", PROGRAM, isas],
        env={"PYTHONPATH": f"{root}", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, f"{run.returncode}\n{run.stdout}\n{run.stderr}"
    assert run.stdout.startswith("ran")
