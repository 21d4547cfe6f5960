"""Phase `throughput`: prefill and decode speed, with and without drafts where there are any."""

from __future__ import annotations

import statistics
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.backends.base import Completed, Generation
from colibri_cli.benchmark.figures import BenchResult
from colibri_cli.benchmark.measuring import BenchPlan, measure_speed
from colibri_cli.diag.cases import LONG_PROMPT
from colibri_cli.diag.phases.base import PhaseResult
from colibri_protocol.messages import RequestOptions, Word

if TYPE_CHECKING:
    from colibri_cli.diag.phases.base import Bench

PLAN: Final = BenchPlan(
    prompt_sizes=(256,), num_generated=48, contexts=(16,), batches=(1,), repeats=3
)
_HELPS, _HURTS = 1.05, 0.95
_DRAFTED: Final = RequestOptions(max_tokens=64, temperature=0.0, ignore_eos=True)


async def run(bench: Bench) -> PhaseResult:
    """Measure."""
    measured = BenchResult(bench.card.id, bench.card.details, "")
    await measure_speed(
        bench.backend, PLAN, measured, lambda text: bench.tell(f"throughput: {text}")
    )
    rows = measured.document()["speed"]
    result = PhaseResult({"speed": rows})
    for row in rows:  # the best of the repeats: others on the machine only ever take speed away
        result.metrics[f"throughput.{row['kind']}"] = round(max(row["repeats"]), 2)
    if Word.DRAFT in bench.card.capabilities:
        await _drafts(bench, result)
    else:
        result.details["drafts"] = "the engine announced none"
    return result


async def _drafts(bench: Bench, result: PhaseResult) -> None:
    bench.tell("throughput: with and without drafts")
    speeds: dict[str, list[float]] = {"with": [], "without": []}
    for _ in range(PLAN.repeats):  # in turns, so that both meet the same load
        speeds["with"].append(await _speed(bench, _DRAFTED))
        speeds["without"].append(await _speed(bench, replace(_DRAFTED, draft=0)))
    gain = statistics.median(speeds["with"]) / max(statistics.median(speeds["without"]), 1e-9)
    verdict = "helps" if gain > _HELPS else "hurts" if gain < _HURTS else "neither"
    drafts: dict[str, Any] = {**speeds, "gain": round(gain, 3), "verdict": verdict}
    result.details["drafts"] = drafts
    result.metrics["throughput.draft_gain"] = round(gain, 3)


async def _speed(bench: Bench, options: RequestOptions) -> float:
    async with await bench.backend.complete(LONG_PROMPT, Generation(options)) as answer:
        async for event in answer:
            if isinstance(event, Completed):
                return event.tokens_per_second
    return 0.0
