"""Measure a model whose experts are read as they are needed, over several budgets of memory.

The model and the way of reading are those of the settings, SNAP among them. Weights that are always
used are loaded once; for every budget the experts start on disk. Further lines:

    MODEL <json>    what is measured
    PHASE <json>    one phase at one budget: prefill, the first tokens, later tokens, and the last
                    one again and again, whose experts are all in memory where they find room

How fast the disk gives records of that size, as many at a time as a token chooses, is measured
before and after every budget; the faster counts.
"""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from dataclasses import dataclass, replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from colibri_engine import kernels, machine
from colibri_engine.caches import make_cache
from colibri_engine.config import read_config
from colibri_engine.errors import BadChoice
from colibri_engine.experts.budget import GB
from colibri_engine.experts.disk_speed import Access, Load, measure
from colibri_engine.experts.record_reader import open_reader
from colibri_engine.experts.records import RecordTable
from colibri_engine.experts.store import ExpertStore
from colibri_engine.kernels import Batch
from colibri_engine.loader.base import StreamedCheckpoint
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.memory_plan import slots_of
from colibri_engine.models.registry import load_model

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from colibri_engine.engine_config import EngineConfig
    from colibri_engine.experts.budget import Placement
    from colibri_engine.jobs.base import JobOutput
    from colibri_engine.loader.stream_tensors import StoredExperts
    from colibri_engine.models.base import Model

_SEED: Final = 7
_SETTLING: Final = 2  # repetitions after which a token's experts are in memory
_WAYS: Final = ("hits", "prefetched", "misses", "late", "ahead", "bytes_read")


@dataclass(frozen=True, slots=True)
class Sums:
    """What has been counted and timed up to one moment."""

    time: float
    timers: dict[str, float]
    counters: Mapping[str, float]


class Bench:
    """One loaded model.

    Args:
        config: The settings.
        output: Where figures go.

    Raises:
        BadChoice: its experts cannot be read one by one.
    """

    def __init__(self, config: EngineConfig, output: JobOutput) -> None:
        self._config = config
        self._output = output
        self._memory = machine.memory()
        with closing(open_checkpoint(config.model_path, config.model_dirs)) as checkpoint:
            found: Mapping[str, StoredExperts] = {}
            if isinstance(checkpoint, StreamedCheckpoint):
                found = checkpoint.stored_experts()
            if not found:
                raise BadChoice(
                    f"{config.model_path} has no experts that can be read one by one",
                    hint="measure a model that `coli convert` has written",
                )
            self._table = RecordTable.of(found)
            self._largest = max(self._table.layers.values(), key=lambda layer: len(layer.places))
            reader = open_reader(self._table.paths, self._largest.nbytes, config.memory.reads)
            self._store = ExpertStore(self._table, reader, looks_ahead=config.memory.looks_ahead)
            self._model: Model = load_model(checkpoint, numerics=config.numerics, store=self._store)
        self._access = Access(reader.mode, reader.is_direct(0))
        self._batch = Batch()
        self._rng = np.random.default_rng(_SEED)

    def tell_model(self) -> None:
        """Write what is measured."""
        body = {
            "path": str(self._config.model_path),
            "record_bytes": self._largest.nbytes,
            "num_experts": self._model.config.num_experts,
            "num_experts_per_token": self._model.config.num_experts_per_token,
            "num_layers": len(self._store.layers),
            "resident_bytes": self._model.resident_bytes,
            "read_mode": self._access.mode,
            "is_direct": self._access.is_direct,
            "num_threads": kernels.num_threads(),
            "looks_ahead": self._config.memory.looks_ahead,
        }
        self._say("MODEL", body)

    def run(self, ram_bytes: int, prompt: int, tokens: int, seconds: float) -> None:
        """Measure one budget.

        Args:
            ram_bytes: The budget.
            prompt: Tokens of the prompt.
            tokens: Of each phase of decoding.
            seconds: Of measuring the disk, twice.

        Raises:
            InsufficientMemory: it cannot hold one expert of each layer.
        """
        memory = replace(self._config.memory, ram_bytes=ram_bytes)
        config = replace(self._config, memory=memory)
        placement = slots_of(self._store, self._model, config, self._memory)
        self._store.open(placement)
        disk_rate = self._disk_rate(seconds)
        phases = self._phases(placement, prompt, tokens)
        disk_rate = max(disk_rate, self._disk_rate(seconds))
        for body in phases:
            self._say("PHASE", body | _against_disk(body, disk_rate))

    def _phases(self, placement: Placement, prompt: int, tokens: int) -> list[dict[str, Any]]:
        cache = make_cache(self._model, self._config.kv_dtype)
        vocab_size = self._model.config.vocab_size

        def step(ids: npt.NDArray[np.int32]) -> int:
            self._batch.set([(cache, cache.length, len(ids))])
            return int(self._model.forward(ids, self._batch, [len(ids) - 1])[0].argmax())

        before = self._sums()
        last = 0
        for start in range(0, prompt, self._config.prefill_chunk):
            count = min(self._config.prefill_chunk, prompt - start)
            last = step(self._rng.integers(0, vocab_size, count).astype(np.int32))
        found = [self._figures("prefill", placement, prompt, before)]
        for name in ("first tokens", "later tokens"):
            before = self._sums()
            for _ in range(tokens):
                last = step(np.array([last], np.int32))
            found.append(self._figures(name, placement, tokens, before))

        length = cache.length
        cache.snapshot()  # recurrent state can be gone back to

        def repeat(count: int) -> None:
            for _ in range(count):
                step(np.array([last], np.int32))
                cache.truncate(length)

        repeat(_SETTLING)
        before = self._sums()
        repeat(tokens)
        found.append(self._figures("same token", placement, tokens, before))
        return found

    def close(self) -> None:
        """End the reads."""
        self._store.close()

    def _sums(self) -> Sums:
        return Sums(perf_counter(), dict(self._model.timers), self._store.report())

    def _figures(self, phase: str, placement: Placement, rows: int, before: Sums) -> dict[str, Any]:
        """Return the figures of what was done since `before`."""
        now = self._sums()
        wall = now.time - before.time
        spent = {name: now.timers[name] - before.timers[name] for name in now.timers}
        counted = {name: int(now.counters[name] - before.counters[name]) for name in _WAYS}
        asked = counted["hits"] + counted["misses"]
        return {
            "ram_bytes": placement.budget.nbytes,
            "slots": max(placement.capacities),
            "phase": phase,
            "rows": rows,
            "seconds": wall,
            "tokens_per_s": rows / wall,
            "hit_percent": 100 * counted["hits"] / asked if asked else 0.0,
            "bytes_per_token": round(counted["bytes_read"] / rows),
            # without what was read ahead in vain
            "missed_bytes": (counted["misses"] + counted["prefetched"]) * self._largest.nbytes,
            "wait_s": spent["expert_wait"],
            "matmul_s": spent["expert_matmul"],
            "attention_s": spent["attention"],
            "lm_head_s": spent["lm_head"],
            "dense_s": spent["dense"],
            "rss_bytes": machine.resident_bytes(),
            **counted,
        }

    def _disk_rate(self, seconds: float) -> float:
        """Return the bytes per second that the disk gives in records."""
        layer = self._largest
        file = layer.places[0].file
        offsets = [place.offset for place in layer.places if place.file == file]
        self._rng.shuffle(offsets)
        load = Load(layer.nbytes, self._model.config.num_experts_per_token)
        rate = measure(self._table.paths[file], offsets, load, self._access, seconds)
        return max(rate.bytes_per_s, 1.0)

    def _say(self, word: str, body: Mapping[str, Any]) -> None:
        self._output.say(word, json.dumps(body, ensure_ascii=False, separators=(",", ":")))


def _against_disk(body: Mapping[str, Any], disk_rate: float) -> dict[str, Any]:
    """Return how what was read compares with what the disk can give."""
    nbytes = body["missed_bytes"]
    rest = body["seconds"] - body["attention_s"] - body["lm_head_s"]
    hidden = 1 - body["wait_s"] * disk_rate / nbytes if nbytes else 1.0
    return {
        "disk_bytes_per_s": round(disk_rate),
        # of the time the disk needs for the bytes missed, what nobody had to wait for
        "hidden_percent": 100 * max(0.0, hidden),
        # against the disk, the time without attention and head
        "disk_percent": 100 * nbytes / rest / disk_rate,
    }


def run(argv: list[str], output: JobOutput) -> None:
    """Measure the model that the settings name.

    Raises:
        EngineError: it cannot be measured; the message says why.
    """
    arguments = _parser().parse_args(argv)
    config = read_config(())
    if config.isa is not None:
        kernels.set_isa(config.isa)
    kernels.set_num_threads(config.num_threads or machine.num_usable_cores())
    bench = Bench(config, output)
    try:
        bench.tell_model()
        for done, ram_gb in enumerate(arguments.budgets, 1):
            bench.run(int(ram_gb * GB), arguments.prompt, arguments.tokens, arguments.seconds)
            output.progress(done, len(arguments.budgets))
    finally:
        bench.close()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="stream-bench", description=__doc__)
    parser.add_argument("--budgets", type=_numbers, required=True, help="GB, with commas")
    parser.add_argument("--prompt", type=int, required=True)
    parser.add_argument("--tokens", type=int, required=True)
    parser.add_argument("--seconds", type=float, default=1.0, help="of measuring the disk, twice")
    return parser


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]
