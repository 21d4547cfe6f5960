"""Where io_uring is forbidden, as container runtimes do it, threads read, and that is said."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(sys.platform != "linux", reason="hardware: io_uring is a feature of Linux"),
]

# A filter of system calls, as containers have one: io_uring_setup (425 on every processor) fails.
FORBID = textwrap.dedent(
    """
    import ctypes
    class Filter(ctypes.Structure):
        _fields_ = [("code", ctypes.c_uint16), ("jt", ctypes.c_uint8), ("jf", ctypes.c_uint8),
                    ("k", ctypes.c_uint32)]
    class Program(ctypes.Structure):
        _fields_ = [("length", ctypes.c_uint16), ("filter", ctypes.POINTER(Filter))]
    filters = (Filter * 4)(
        Filter(0x20, 0, 0, 0),              # load the number of the call
        Filter(0x15, 0, 1, 425),            # is it io_uring_setup?
        Filter(0x06, 0, 0, 0x00050000 | 1), # then fail with EPERM
        Filter(0x06, 0, 0, 0x7FFF0000),     # else go on
    )
    libc = ctypes.CDLL(None, use_errno=True)
    assert libc.prctl(38, 1, 0, 0, 0) == 0
    assert libc.prctl(22, 2, ctypes.byref(Program(4, filters)), 0, 0) == 0
    """
)


def run_without_uring(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", FORBID + textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_threads_take_over_and_the_reason_is_given(path: Path) -> None:
    said = run_without_uring(
        f"""
        from colibri_engine.kernels import ReadEngine, SlotArena
        engine = ReadEngine()
        print(engine.mode, engine.mode_reason)
        file = engine.open({str(path)!r}, direct=True)
        arena = SlotArena(1, 1 << 20)
        engine.submit(1, file, 1 << 20, 1 << 20, arena, 0)
        [completion] = engine.wait(20)
        assert completion.error == 0
        assert bytes(arena.array(0)) == open({str(path)!r}, "rb").read()[1 << 20: 2 << 20]
        try:
            ReadEngine("io_uring")
        except RuntimeError as error:
            print(error)
        """
    )
    reason = "io_uring is not available: Operation not permitted"
    assert said.splitlines() == [f"threads {reason}", reason]


def test_a_measurement_says_what_is_missing(tmp_path: Path) -> None:
    said = run_without_uring(
        f"""
        from colibri_engine.jobs import main
        raise SystemExit(main(["disk-bench", "--directory", {str(tmp_path)!r}, "--read", "4096",
                               "--depth", "1", "--seconds", "0.05", "--file-bytes", "1048576"]))
        """
    )
    lines = [line.partition(" ") for line in said.splitlines()]
    assert [rest for word, _, rest in lines if word == "NOTE"] == [
        "io_uring is not available: Operation not permitted"
    ]
    rates = [json.loads(rest) for word, _, rest in lines if word == "RATE"]
    assert len(rates) == 4
    assert {rate["mode"] for rate in rates} == {"threads"}
