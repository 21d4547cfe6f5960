"""Phase `diagnostic`: one long answer in detail, and the same prompt in other company.

The figures are the engine's own. A prompt asked alone, together with others and from a cached
beginning must give the same answer, whatever the machine is doing.
"""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.diag.cases import LONG_PROMPT, SMOKE_CASES
from colibri_cli.diag.phases.base import PhaseResult
from colibri_cli.errors import CapabilityMissing

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.diag.asking import Reply
    from colibri_cli.diag.phases.base import Bench

_LONG: Final = 96
_SHORT: Final = 24
_TOGETHER: Final = 3
_CURVE_STEP: Final = 16
_SUMS: Final = ("prompt_tokens", "reused_tokens", "completion_tokens", "num_forwards",
                "expert_selections", "num_rows")  # fmt: skip


async def run(bench: Bench) -> PhaseResult:
    """Give one long answer, then compare answers in company."""
    bench.tell("diagnostic: one long answer")
    before = await _counters(bench)
    reply = await bench.asker.answer(LONG_PROMPT, _LONG, runs_on=True)
    after = await _counters(bench)
    result = PhaseResult(_long_answer(reply, is_ours=bench.server is None))
    telemetry = bench.backend.telemetry()
    if telemetry.profile is not None:
        result.details["profile"] = asdict(telemetry.profile)
    result.details["counters"] = spent = _difference(before, after)
    if telemetry.tiers is not None:
        result.details["tiers"] = asdict(telemetry.tiers)
        has_experts = telemetry.tiers.ram + telemetry.tiers.vram + telemetry.tiers.disk > 0
        if has_experts and bench.server is None:
            result.metrics["diagnostic.hit_percent"] = reply.done.hit_percent
    if forwards := spent.get("num_forwards"):
        tokens = spent.get("completion_tokens", 0.0)
        result.metrics["diagnostic.tokens_per_forward"] = round(tokens / forwards, 4)
    if (rows := spent.get("num_rows")) and spent.get("expert_selections"):
        result.metrics["diagnostic.selections_per_token"] = spent["expert_selections"] / rows
    await _in_company(bench, result)
    return result


async def _in_company(bench: Bench, result: PhaseResult) -> None:
    bench.tell("diagnostic: alone, together, from the cache")
    prompts = [case.prompt for case in SMOKE_CASES[-_TOGETHER:]]
    alone = [(await bench.asker.answer(prompt, _SHORT)).text for prompt in prompts]
    again = [(await bench.asker.answer(prompts[-1], _SHORT)).text for _ in range(2)]
    together = await asyncio.gather(*(bench.asker.answer(prompt, _SHORT) for prompt in prompts))
    same = sum(reply.text == text for reply, text in zip(together, alone, strict=True))
    result.metrics["diagnostic.same_together"] = float(same)
    result.metrics["diagnostic.same_from_cache"] = float(again.count(alone[-1]))
    if same < len(prompts):
        result.problems.append(f"{len(prompts) - same} answers changed in company of others")
    if again.count(alone[-1]) < len(again):
        result.problems.append("an answer changed when its prompt came from the cache")


def _long_answer(reply: Reply, *, is_ours: bool) -> dict[str, Any]:
    done = reply.done
    return {
        "answer": reply.text,
        "prompt_tokens": done.prompt_tokens,
        "completion_tokens": done.completion_tokens,
        "first_token_s": done.first_token_s,
        "total_s": done.total_s,
        "tokens_per_second": done.tokens_per_second,
        "hit_percent": done.hit_percent if is_ours else None,  # no server tells them
        "rss_gb": done.rss_gb if is_ours else None,
        "curve_s": list(reply.curve[::_CURVE_STEP]),
    }


async def _counters(bench: Bench) -> Mapping[str, object]:
    try:
        return await bench.backend.counters()
    except CapabilityMissing:
        return {}


def _difference(before: Mapping[str, object], after: Mapping[str, object]) -> dict[str, float]:
    spent = {}
    for name in _SUMS:
        first, last = before.get(name), after.get(name)
        if isinstance(first, int | float) and isinstance(last, int | float):
            spent[name] = float(last - first)
    return spent
