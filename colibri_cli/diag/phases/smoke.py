"""Phase `smoke`: short prompts; does the answer hold the known word, does it turn in circles."""

from __future__ import annotations

import hashlib
import re
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.diag.cases import SMOKE_CASES
from colibri_cli.diag.phases.base import PhaseResult

if TYPE_CHECKING:
    from colibri_cli.diag.asking import Reply
    from colibri_cli.diag.cases import SmokeCase
    from colibri_cli.diag.phases.base import Bench

_MAX_TOKENS: Final = 32
_READ: Final = 200  # characters of an answer in which the word must stand
_CIRCLE: Final = re.compile(r"(\w+)(?:\W+\1\b){2,}")  # one word three times in a row


async def run(bench: Bench) -> PhaseResult:
    """Ask all prompts."""
    cases = []
    for case in SMOKE_CASES:
        bench.tell(f"smoke: {case.group}, {case.name}")
        cases.append(_judged(case, await bench.asker.answer(case.prompt, _MAX_TOKENS)))
    metrics = {
        "smoke.passed": float(sum(case["passed"] for case in cases)),
        "smoke.repeating": float(sum(case["is_repeating"] for case in cases)),
    }
    return PhaseResult({"cases": cases}, metrics)


def same_answers(now: list[dict[str, Any]], before: list[dict[str, Any]]) -> int:
    """Return how many answers are those of another report, letter by letter."""
    known = {case["name"]: case["sha256"] for case in before}
    return sum(known.get(case["name"]) == case["sha256"] for case in now)


def _judged(case: SmokeCase, reply: Reply) -> dict[str, Any]:
    text = reply.text
    found = not case.expected or any(word in text[:_READ] for word in case.expected)
    return {
        "name": case.name,
        "group": case.group,
        "prompt": case.prompt,
        "expected": list(case.expected),
        "answer": text,
        "sha256": hashlib.sha256(text.encode()).hexdigest(),
        "passed": bool(text.strip()) and found,
        "is_repeating": is_repeating(text),
        "tokens": reply.done.completion_tokens,
    }


def is_repeating(text: str) -> bool:
    """Return whether a word comes three times in a row."""
    return _CIRCLE.search(text) is not None
