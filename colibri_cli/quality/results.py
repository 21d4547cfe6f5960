"""Results of tasks: per question, per task, and two runs side by side on the same questions."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SCHEMA_VERSION: Final = 1
KIND: Final = "coli bench quality"
_Z: Final = 1.959964  # of 95 %


@dataclass(frozen=True, slots=True)
class ItemResult:
    """What a model made of one question: log-probability and characters of each choice."""

    task: str
    id: str
    gold: int
    logprobs: tuple[float, ...]
    lengths: tuple[int, ...]

    @property
    def is_right(self) -> bool:
        """Whether the likeliest choice is the right one."""
        return max(range(len(self.logprobs)), key=self.logprobs.__getitem__) == self.gold

    @property
    def is_right_by_length(self) -> bool:
        """Whether it is, by log-probability per character."""
        scores = [score / n for score, n in zip(self.logprobs, self.lengths, strict=True)]
        return max(range(len(scores)), key=scores.__getitem__) == self.gold

    def row(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            **asdict(self),
            "right": self.is_right,
            "right_by_length": self.is_right_by_length,
        }


def summary(task: str, items: Sequence[ItemResult]) -> dict[str, Any]:
    """Return accuracy in percent, plain and by length, each with its 95 % interval."""
    right = sum(item.is_right for item in items)
    by_length = sum(item.is_right_by_length for item in items)
    return {
        "task": task,
        "n": len(items),
        "acc": _percent(right, len(items)),
        "acc_interval": wilson(right, len(items)),
        "acc_norm": _percent(by_length, len(items)),
        "acc_norm_interval": wilson(by_length, len(items)),
    }


def wilson(right: int, number: int) -> list[float]:
    """Return the 95 % interval of a share, in percent. Source: Wilson (1927)."""
    share, z2 = right / number, _Z * _Z
    middle = share + z2 / (2 * number)
    spread = _Z * math.sqrt(share * (1 - share) / number + z2 / (4 * number * number))
    scale = 100 / (1 + z2 / number)
    return [round(max(0.0, middle - spread) * scale, 2), round((middle + spread) * scale, 2)]


def compare(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return one row per task both reports have, over the questions both have.

    The difference is second minus first in percentage points, with a 95 % interval from the
    questions only one of them got right, and the exact probability of such a split by chance.
    Source: McNemar (1947).

    Raises:
        UsageError: they share no question.
    """
    ours = {(item["task"], item["id"]): item for item in first["items"]}
    theirs = {(item["task"], item["id"]): item for item in second["items"]}
    shared = [key for key in ours if key in theirs]
    if not shared:
        raise UsageError("the two reports share no question", hint="run the same tasks twice")
    rows = []
    for task in dict.fromkeys(task for task, _ in shared):
        pairs = [(ours[key], theirs[key]) for key in shared if key[0] == task]
        for name, field in (("acc", "right"), ("acc_norm", "right_by_length")):
            lost = sum(bool(a[field]) and not b[field] for a, b in pairs)
            won = sum(bool(b[field]) and not a[field] for a, b in pairs)
            rows.append({"task": task, "figure": name, **_difference(lost, won, len(pairs))})
    return rows


def _difference(lost: int, won: int, number: int) -> dict[str, Any]:
    change = (won - lost) / number
    spread = _Z * math.sqrt(max(0.0, won + lost - (won - lost) ** 2 / number)) / number
    return {
        "n": number,
        "won": won,
        "lost": lost,
        "difference": round(100 * change, 2),
        "interval": [round(100 * (change - spread), 2), round(100 * (change + spread), 2)],
        "p": round(chance_of(lost, won), 6),
    }


def chance_of(lost: int, won: int) -> float:
    """Return how likely a split at least this uneven is if both were equally good."""
    number, fewer = lost + won, min(lost, won)
    if number == 0:
        return 1.0
    tail = sum(math.comb(number, k) for k in range(fewer + 1))
    return min(1.0, float(2 * tail / 2**number))


def _percent(count: int, number: int) -> float:
    return round(100 * count / number, 2)
