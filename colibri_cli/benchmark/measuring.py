"""Running the measurements through a backend, one repeat after the other.

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
from typing import TYPE_CHECKING, Final

from colibri_cli.backends.base import Completed, Generation, Started
from colibri_cli.benchmark.figures import BenchResult, SpeedRow
from colibri_cli.errors import CapabilityMissing
from colibri_protocol.messages import RequestOptions

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from colibri_cli.backends.base import Backend

_WORDS: Final = ("the", "of", "and", "to", "in", "is", "that", "it", "was", "for", "on", "are")
_MAX_ADJUSTMENTS: Final = 12


@dataclass(frozen=True, slots=True)
class BenchPlan:
    """What to measure.

    Args:
        prompt_sizes: Prompt lengths for prefill.
        num_generated: Tokens per answer for decode.
        contexts: Context lengths at which decode is measured.
        batches: Numbers of requests at the same time for decode.
        repeats: Repeats of each.
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
    """Add the rows of all speeds to `result`."""
    await _answer(backend, await _prompt_of(backend, 16), 4)  # warms caches and threads up
    for size in plan.prompt_sizes:
        tell(f"prefill of {size} tokens")
        result.rows.append(await _prefill_row(backend, size, plan.repeats))
    for context in plan.contexts:
        for batch in plan.batches:
            tell(f"decode of {plan.num_generated} tokens, context {context}, batch {batch}")
            result.rows.append(await _decode_row(backend, plan, context, batch))


async def timed_load(make_backend: Callable[[], Backend], repeats: int) -> float:
    """Return the median of the times from nothing to a ready model."""
    times = []
    for _ in range(repeats):
        backend = make_backend()
        began = time.monotonic()
        try:
            await backend.open()
            times.append(time.monotonic() - began)
        finally:
            await backend.close()
    return sorted(times)[len(times) // 2]


def drop_from_page_cache(path: Path) -> bool:
    """Make the next load read a model's files from the disk; False where that cannot be done."""
    if not hasattr(os, "posix_fadvise"):
        return False
    files = [path] if path.is_file() else [entry for entry in path.rglob("*") if entry.is_file()]
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


async def _prefill_row(backend: Backend, size: int, repeats: int) -> SpeedRow:
    speeds = []
    tokens = size
    for _ in range(repeats):
        prompt = await _prompt_of(backend, size)
        before = await _model_seconds(backend)
        sample = await _answer(backend, prompt, 1)
        after = await _model_seconds(backend)
        tokens = sample.done.prompt_tokens - sample.done.reused_tokens
        if before is not None and after is not None:
            seconds = after - before
        else:
            seconds = sample.done.first_token_s or sample.done.total_s
        speeds.append(tokens / max(seconds, 1e-9))
    return SpeedRow("prefill", tokens, 0, 1, tuple(speeds))


async def _decode_row(backend: Backend, plan: BenchPlan, context: int, batch: int) -> SpeedRow:
    speeds = []
    reached = context
    for _ in range(plan.repeats):
        prompts = [await _prompt_of(backend, context) for _ in range(batch)]
        samples = await asyncio.gather(
            *(_answer(backend, prompt, plan.num_generated) for prompt in prompts)
        )
        reached = samples[0].done.prompt_tokens
        speeds.append(sum(sample.done.tokens_per_second for sample in samples))
    return SpeedRow("decode", plan.num_generated * batch, reached, batch, tuple(speeds))


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
    num_words = max(size - 4, 0)
    text = _text(start, num_words)
    for _ in range(_MAX_ADJUSTMENTS):
        try:
            missing = size - await backend.count_text(text)
        except CapabilityMissing:
            return text
        if missing == 0:
            break
        num_words = max(0, num_words + missing)
        text = _text(start, num_words)
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
