"""How fast coli and llama.cpp's llama-bench are at the same two tasks; imported by the scripts.

Prefill is 512 tokens from an empty context with the logits of the last, decode is 128 single
tokens from an empty context; both in tokens per second. Each call warms up first.
"""

from __future__ import annotations

import json
import platform
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from colibri_engine import kernels, machine
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model

if TYPE_CHECKING:
    from pathlib import Path

NUM_PROMPT = 512
NUM_DECODED = 128
PREFILL_CHUNK = 256  # as the engine process takes them
WARM_UP_TOKENS = 8


@dataclass(frozen=True)
class Speeds:
    """Tokens per second."""

    prefill: float
    decode: float


class Contender(Protocol):
    """Something that can be measured again and again."""

    def measure(self) -> Speeds:
        """Run both tasks once more."""


@dataclass(frozen=True)
class EngineOptions:
    """How coli runs; None leaves a choice to it."""

    numerics: str = "default"
    isa: str | None = None
    threads: int | None = None


# ---- coli ---------------------------------------------------------------------------------------


class OurProcess:
    """The engine process behind `coli bench`, by its own counters, sampling and pipes included."""

    def __init__(self, model: Path, options: EngineOptions, repeats: int = 3) -> None:
        self._command = [
            sys.executable, "-m", "colibri_cli", "bench", "--json", "--quiet", "--no-load",
            "--model", str(model), "--numerics", options.numerics,
            "--prompt", str(NUM_PROMPT), "--generate", str(NUM_DECODED), "--context", "1",
            "--repeats", str(repeats),
        ]  # fmt: skip
        if options.threads is not None:
            self._command += ["--threads", str(options.threads)]
        self._environment = {} if options.isa is None else {"COLI_ISA": options.isa}

    def measure(self) -> Speeds:
        """Start an engine and let it run both tasks."""
        import os

        run = subprocess.run(
            self._command,
            env={**os.environ, **self._environment},
            check=True,
            capture_output=True,
            text=True,
        )
        rows = {row["kind"]: row["tokens_per_second"] for row in json.loads(run.stdout)["speed"]}
        return Speeds(rows["prefill"], rows["decode"])


class OurModel:
    """The model in this very process: forward passes and argmax, nothing around them."""

    def __init__(self, path: Path, options: EngineOptions) -> None:
        if options.isa is not None:
            kernels.set_isa(options.isa)
        kernels.set_num_threads(options.threads or machine.num_usable_cores())
        with closing(open_checkpoint(path)) as checkpoint:
            self._model = load_model(checkpoint, numerics=options.numerics)
        self._rng = np.random.default_rng(1)
        self._batch = kernels.Batch()

    @property
    def bytes_per_token(self) -> int:
        """Bytes of weights that one decoded token reads: all of them, in a dense tied model."""
        return self._model.resident_bytes

    def measure(self) -> Speeds:
        """Run both tasks."""
        self.decode(WARM_UP_TOKENS)
        return Speeds(self.prefill(), self.decode())

    def prefill(self, count: int = NUM_PROMPT) -> float:
        """Return tokens per second of a random prompt."""
        ids = self._rng.integers(0, self._model.config.vocab_size, count).astype(np.int32)
        cache = self._model.make_cache()
        begin = time.perf_counter()
        for start in range(0, count, PREFILL_CHUNK):
            chunk = ids[start : start + PREFILL_CHUNK]
            self._batch.set([(cache, start, len(chunk))])
            is_last = start + len(chunk) == count
            self._model.forward(chunk, self._batch, [len(chunk) - 1] if is_last else [])
        return count / (time.perf_counter() - begin)

    def decode(self, count: int = NUM_DECODED) -> float:
        """Return tokens per second of greedy decoding."""
        ids = np.ones(1, np.int32)
        cache = self._model.make_cache()
        begin = time.perf_counter()
        for position in range(count):
            self._batch.set([(cache, position, 1)])
            ids[0] = self._model.forward(ids, self._batch, [0])[0].argmax()
        return count / (time.perf_counter() - begin)


# ---- llama.cpp ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class TheirSetting:
    """Threads, and whether flash attention is on."""

    threads: int
    flash: bool

    def __str__(self) -> str:
        return f"{self.threads} threads, flash attention {'on' if self.flash else 'off'}"


class LlamaBench:
    """One llama-bench program and one model.

    Args:
        program: Path of llama-bench.
        model: GGUF file.
        repeats: Runs of each task per call; llama-bench reports their mean.
    """

    def __init__(self, program: Path, model: Path, repeats: int = 3) -> None:
        self._program, self._model, self._repeats = program, model, repeats
        self.build = "unknown"
        self.prefill_setting = self.decode_setting = TheirSetting(1, flash=False)

    def choose_settings(self, threads: tuple[int, ...]) -> None:
        """Find the setting at which each task is fastest, and use it from now on."""
        settings = [TheirSetting(n, flash) for n in threads for flash in (False, True)]
        found = {setting: self._run(setting, NUM_PROMPT, NUM_DECODED) for setting in settings}
        self.prefill_setting = max(settings, key=lambda s: found[s]["prefill"])
        self.decode_setting = max(settings, key=lambda s: found[s]["decode"])

    def measure(self) -> Speeds:
        """Run both tasks, each at its best setting."""
        prefill = self._run(self.prefill_setting, NUM_PROMPT, 0)["prefill"]
        return Speeds(prefill, self._run(self.decode_setting, 0, NUM_DECODED)["decode"])

    def decode(self) -> float:
        """Return tokens per second of decoding at its best setting."""
        return self._run(self.decode_setting, 0, NUM_DECODED)["decode"]

    def _run(self, setting: TheirSetting, num_prompt: int, num_decoded: int) -> dict[str, float]:
        command: list[str | Path] = [
            self._program, "-m", self._model, "-o", "json", "-r", str(self._repeats),
            "-p", str(num_prompt), "-n", str(num_decoded),
            "-t", str(setting.threads), "-fa", "1" if setting.flash else "0",
        ]  # fmt: skip
        run = subprocess.run(command, check=True, capture_output=True, text=True)
        tests: list[dict[str, Any]] = json.loads(run.stdout)
        self.build = f"{tests[0]['build_commit']} ({tests[0]['build_number']})"
        return {"prefill" if t["n_prompt"] else "decode": t["avg_ts"] for t in tests}


# ---- the machine --------------------------------------------------------------------------------


def machine_facts() -> dict[str, str]:
    """Return what a reader must know to judge the figures."""
    try:
        coli = version("colibri-cli")
    except PackageNotFoundError:
        coli = "source tree"
    available = kernels.available_isas()
    lacking = "" if "amx" in available else ", no AMX" if "avx512" in available else ""
    return {
        "date": f"{datetime.now(UTC):%Y-%m-%d %H:%M} UTC",
        "cpu": f"{machine.cpu_name()}, {machine.num_usable_cores()} cores",
        "isas": ", ".join(available) + lacking,
        "memory": f"{machine.memory().total / 1e9:.0f} GB",
        "system": f"{platform.system()} {platform.release()}, Python {platform.python_version()}",
        "coli": coli,
    }


def facts_text(facts: dict[str, str]) -> str:
    """Return the facts as lines."""
    return "\n".join(f"{name:7} {value}" for name, value in facts.items())
