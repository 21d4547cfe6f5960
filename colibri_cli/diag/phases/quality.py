"""Phase `quality`: log-likelihood of known passages, and questions decided by it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from colibri_cli.diag.cases import PASSAGES, QUESTIONS
from colibri_cli.diag.phases.base import PhaseResult

if TYPE_CHECKING:
    from colibri_cli.diag.cases import Question
    from colibri_cli.diag.phases.base import Bench


async def run(bench: Bench) -> PhaseResult:
    """Score passages and choices."""
    if not bench.asker.can_score:
        return PhaseResult(skipped="the engine announced neither grammars nor log-probabilities")
    passages: list[dict[str, Any]] = []
    for passage in PASSAGES:
        bench.tell(f"quality: passage {passage.name}")
        score = await bench.asker.score(passage.start, passage.text)
        passages.append(
            {"name": passage.name, "logprob": score.logprob, "tokens": score.num_tokens}
        )
    bench.tell(f"quality: {len(QUESTIONS)} questions")
    questions = [await _answered(bench, question) for question in QUESTIONS]
    num_tokens = sum(passage["tokens"] for passage in passages)
    metrics = {
        "quality.logprob_per_token": sum(p["logprob"] for p in passages) / max(num_tokens, 1),
        "quality.choice_logprob": sum(q["logprobs"][q["gold"]] for q in questions) / len(questions),
        "quality.acc": _percent(questions, "choice"),
        "quality.acc_norm": _percent(questions, "choice_by_length"),
    }
    rounded = {name: round(value, 6) for name, value in metrics.items()}
    return PhaseResult({"passages": passages, "questions": questions}, rounded)


async def _answered(bench: Bench, question: Question) -> dict[str, Any]:
    scores = [(await bench.asker.score(question.context, c)).logprob for c in question.choices]
    by_length = [score / len(c) for score, c in zip(scores, question.choices, strict=True)]
    return {
        "context": question.context,
        "choices": list(question.choices),
        "gold": question.gold,
        "logprobs": scores,
        "choice": scores.index(max(scores)),
        "choice_by_length": by_length.index(max(by_length)),
    }


def _percent(questions: list[dict[str, Any]], key: str) -> float:
    num_right = sum(bool(question[key] == question["gold"]) for question in questions)
    return 100.0 * num_right / len(questions)
