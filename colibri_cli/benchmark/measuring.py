"""Running the measurements through a backend, one round after the other.

Speeds come from the engine's own clock where it has one: decode speed from the figures of each
answer, prefill speed from the time its model ran. Every prompt begins differently, so nothing is
taken from a cached prefix; all answers run to their full length whatever the model says.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Final

from colibri_cli.backends.base import Completed, Generation, Started
from colibri_cli.benchmark.figures import BenchResult, SpeedRow
from colibri_cli.errors import CapabilityMissing
from colibri_protocol.messages import RequestOptions

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping
    from pathlib import Path

    from colibri_cli.backends.base import Backend

    Measure = Callable[[], Awaitable[float]]

_WORDS: Final = ("the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are")
_MAX_ADJUSTMENTS: Final = 12
_MAX_LOADS: Final = 3  # a large model takes its time


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What to measure.

    Args:
        prompt_sizes: Prompt lengths for prefill.
        num_generated: Tokens per answer for decode.
        contexts: Context lengths at which decode is measured.
        batches: Numbers of requests at the same time for decode.
        repeats: Rounds, each of which measures everything once.
    """

    prompt_sizes: tuple[int, ...]
    num_generated: int
    contexts: tuple[int, ...]
    batches: tuple[int, ...]
    repeats: int

    @property
    def context_needed(self) -> int:
        """Context that the longest measurement takes, with room for a prompt's own start."""
        longest = max(max(self.prompt_sizes) + 1, max(self.contexts) + self.num_generated)
        return longest + 64


@dataclass(frozen=True, slots=True)
class _Sample:
    """One answer: its figures and when it began."""

    started: Started
    done: Completed


async def measure_speed(
    backend: Backend, plan: BenchPlan, result: BenchResult, tell: Callable[[str], None]
) -> None:
    """Add the rows of all speeds to `result`.

    Every round measures everything once, so that a machine that gets slower meanwhile does so for
    all rows alike.
    """
    await _answer(backend, await _prompt_of(backend, 16), 4)  # warms caches and threads up
    things = _things(backend, plan)
    speeds: list[list[float]] = [[] for _ in things]
    for number in range(plan.repeats):
        tell(f"round {number + 1} of {plan.repeats}")
        for found, (_, measure) in zip(speeds, things, strict=True):
            found.append(await measure())
    for found, (row, _) in zip(speeds, things, strict=True):
        result.rows.append(replace(row, speeds=tuple(found)))


async def measure_cold(
    make_backend: Callable[[], Backend], plan: BenchPlan, result: BenchResult, path: Path
) -> None:
    """Load the model from the disk, ask it once, and so on; adds loads and rows to `result`.

    Adds nothing where files cannot be dropped from the page cache.
    """
    loads: list[float] = []
    size, context = min(plan.prompt_sizes), min(plan.contexts)
    prefills: list[float] = []
    decodes: list[float] = []
    for _ in range(min(plan.repeats, _MAX_LOADS)):
        if not drop_from_page_cache(path):
            return
        backend = make_backend()
        began = time.monotonic()
        try:
            await backend.open()
            loads.append(time.monotonic() - began)
            prefills.append(await _prefill(backend, size))
            decodes.append(await _decode(backend, plan, context, 1))
        finally:
            await backend.close()
    result.cold_loads_s = tuple(loads)
    result.rows += [
        SpeedRow("prefill", size, 0, 1, tuple(prefills), is_cold=True),
        SpeedRow("decode", plan.num_generated, context, 1, tuple(decodes), is_cold=True),
    ]


async def measure_warm_loads(
    make_backend: Callable[[], Backend], plan: BenchPlan, result: BenchResult
) -> None:
    """Load the model while its files are in the page cache; adds the times to `result`."""
    times = []
    for _ in range(min(plan.repeats, _MAX_LOADS)):
        backend = make_backend()
        began = time.monotonic()
        try:
            await backend.open()
            times.append(time.monotonic() - began)
        finally:
            await backend.close()
    result.warm_loads_s = tuple(times)


def drop_from_page_cache(path: Path) -> bool:
    """Make the next load read a model's files from the disk; False where that cannot be done."""
    if not hasattr(os, "posix_fadvise"):
        return False
    try:
        entries = list(path.rglob("*")) if path.is_dir() else [path]
        files = [entry for entry in entries if entry.is_file()]
    except OSError:  # something in it may not be looked at
        return False
    for file in files:
        try:
            descriptor = os.open(file, os.O_RDONLY)
        except OSError:
            return False
        try:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(descriptor)
    return True


def peak_memory_of_children() -> int | None:
    """Return the most memory one of our ended child processes had resident, in bytes."""
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _things(backend: Backend, plan: BenchPlan) -> list[tuple[SpeedRow, Measure]]:
    """Return what a round measures, and how; sizes are those asked for, which runs share."""
    found: list[tuple[SpeedRow, Measure]] = [
        (SpeedRow("prefill", size, 0, 1, ()), partial(_prefill, backend, size))
        for size in plan.prompt_sizes
    ]
    found += [
        (
            SpeedRow("decode", plan.num_generated * batch, context, batch, ()),
            partial(_decode, backend, plan, context, batch),
        )
        for context in plan.contexts
        for batch in plan.batches
    ]
    return found


async def _prefill(backend: Backend, size: int) -> float:
    prompt = await _prompt_of(backend, size)
    before = await _model_seconds(backend)
    sample = await _answer(backend, prompt, 1)
    after = await _model_seconds(backend)
    tokens = sample.done.prompt_tokens - sample.done.reused_tokens
    if before is not None and after is not None:
        seconds = after - before
    else:
        seconds = sample.done.first_token_s or sample.done.total_s
    return tokens / max(seconds, 1e-9)


async def _decode(backend: Backend, plan: BenchPlan, context: int, batch: int) -> float:
    prompts = [await _prompt_of(backend, context) for _ in range(batch)]
    samples = await asyncio.gather(
        *(_answer(backend, prompt, plan.num_generated) for prompt in prompts)
    )
    return sum(sample.done.tokens_per_second for sample in samples)


async def _answer(backend: Backend, prompt: str, max_tokens: int) -> _Sample:
    options = RequestOptions(max_tokens=max_tokens, temperature=0.0, ignore_eos=True)
    started, done = Started(0, None), None
    try:
        answer = await backend.complete(prompt, Generation(options))
    except CapabilityMissing:  # a baseline engine: it may end earlier, its speed still counts
        answer = await backend.complete(prompt, Generation(replace(options, ignore_eos=False)))
    async with answer:
        async for event in answer:
            if isinstance(event, Started):
                started = event
            elif isinstance(event, Completed):
                done = event
    assert done is not None
    return _Sample(started, done)


async def _prompt_of(backend: Backend, size: int) -> str:
    """Return a text of `size` tokens that begins like no other, as near as words allow."""
    start = secrets.token_hex(3)
    num_words = max(size - 4, 1)
    text = _text(start, num_words)
    try:
        before = await backend.count_text(start)
        for _ in range(_MAX_ADJUSTMENTS):
            count = await backend.count_text(text)
            tokens_per_word = max(1.0, (count - before) / max(num_words, 1))
            step = max(round((size - count) / tokens_per_word), -num_words)
            if step == 0:
                break
            num_words += step
            text = _text(start, num_words)
    except CapabilityMissing:
        pass
    return text


def _text(start: str, num_words: int) -> str:
    return " ".join([start, *(_WORDS[i % len(_WORDS)] for i in range(num_words))])


async def _model_seconds(backend: Backend) -> float | None:
    """Return how long the engine's model has run so far, if the engine counts that."""
    try:
        counters: Mapping[str, object] = await backend.counters()
    except CapabilityMissing:
        return None
    seconds = counters.get("model_s")
    return float(seconds) if isinstance(seconds, int | float) else None
