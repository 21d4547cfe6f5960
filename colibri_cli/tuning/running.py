"""Measuring candidates: an engine per candidate, one fixed prompt, the same tokens each time."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.backends.base import Completed, Generation, TextDelta
from colibri_cli.backends.opening import native_backend
from colibri_cli.errors import CapabilityMissing, TuneError
from colibri_cli.tuning.search import Run, search
from colibri_protocol.messages import RequestOptions, Word

if TYPE_CHECKING:
    from collections.abc import Callable

    from colibri_cli.backends.base import Backend, ModelCard
    from colibri_cli.tuning.search import Candidate, Measured, Outcome
    from colibri_protocol.settings import ResolvedSettings

_WARM_UP_TOKENS: Final = 4
_UNSAVED: Final = {
    "kv_save": "0",
    "usage_save": "0",
}  # a prompt that is found computed says nothing
_READ_WAYS: Final[tuple[tuple[str, Candidate], ...]] = (
    ("through the page cache", {"direct": "0"}),
    ("around the page cache", {"direct": "1"}),
    ("reads by threads", {"read_mode": "threads"}),
)


@dataclass(frozen=True, slots=True)
class TunePlan:
    """How to measure: the prompt, tokens per answer, answers per candidate, seconds for each."""

    prompt: str
    tokens: int
    repeats: int
    timeout_s: float
    min_gain: float


async def tune(
    settings: ResolvedSettings, plan: TunePlan, tell: Callable[[Measured], None]
) -> tuple[ModelCard, Outcome]:
    """Search among the candidates that suit the model.

    Raises:
        TuneError: a candidate takes too long.
        ColibriError: the model cannot be run.
    """
    cards: list[ModelCard] = []

    async def measure(candidate: Candidate) -> list[Run]:
        backend = native_backend(settings, extra={**candidate, **_UNSAVED})
        try:
            async with asyncio.timeout(plan.timeout_s):
                await backend.open()
                cards.append((await backend.models())[0])
                await _answer(backend, cards[-1], plan, _WARM_UP_TOKENS)
                return [
                    await _answer(backend, cards[-1], plan, plan.tokens)
                    for _ in range(plan.repeats)
                ]
        except TimeoutError as error:
            raise TuneError(
                f"one candidate took longer than {plan.timeout_s:g} s",
                hint="give more --timeout, or fewer --tokens",
            ) from error
        finally:
            await backend.close()

    is_streamed = await _is_streamed(settings)
    found = await search(
        _candidates(settings, is_streamed=is_streamed), measure, plan.min_gain, tell
    )
    return cards[-1], found


def _candidates(settings: ResolvedSettings, *, is_streamed: bool) -> list[tuple[str, Candidate]]:
    """Return what may be tried: nothing that somebody set."""
    cores = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    found: list[tuple[str, Candidate]] = [
        (f"{count} threads", {"num_threads": str(count)})
        for count in dict.fromkeys((cores, max(1, cores // 2)))
    ]
    if is_streamed:
        found += _READ_WAYS
    return [
        (name, candidate)
        for name, candidate in found
        if not any(settings.is_given(key) for key in candidate)
    ]


async def _is_streamed(settings: ResolvedSettings) -> bool:
    """Whether experts are read from disk while the model answers."""
    backend = native_backend(settings, extra=_UNSAVED)
    try:
        await backend.open()
        tiers = backend.telemetry().tiers
        return tiers is not None and tiers.disk > 0
    finally:
        await backend.close()


async def _answer(backend: Backend, card: ModelCard, plan: TunePlan, tokens: int) -> Run:
    # No guesses: whether they pay depends on the text, not on what is tuned here.
    draft = 0 if Word.DRAFT in card.capabilities else None
    options = RequestOptions(max_tokens=tokens, temperature=0.0, ignore_eos=True, draft=draft)
    loop = asyncio.get_running_loop()
    text, times, done = [], [], None
    try:
        answer = await backend.complete(plan.prompt, Generation(options))
    except CapabilityMissing as error:
        raise TuneError("the engine cannot run an answer to its full length") from error
    async with answer:
        async for event in answer:
            if isinstance(event, TextDelta):
                text.append(event.text)
                times.append(loop.time())
            elif isinstance(event, Completed):
                done = event
    assert done is not None
    steps = sorted(later - earlier for earlier, later in pairwise(times))
    slowest: Any = steps[min(len(steps) - 1, int(0.99 * len(steps)))] if steps else 0.0
    return Run(done.tokens_per_second, done.hit_percent, slowest, "".join(text))
