"""Tasks: questions with choices, from files of one JSON object per line, and a small one of ours.

A row has `ctx` (what stands before), `choices` (texts that may follow) and `gold` (the index of the
right one). A task is the file NAME.jsonl in the folder of data, or a plugin's; `fetching` may put a
file there.
"""

from __future__ import annotations

import hashlib
import json
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.diag.cases import QUESTIONS
from colibri_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

SMOKE: Final = "smoke"
USUAL: Final = ("hellaswag", "arc_challenge", "mmlu")
_SEED: Final = 1234
_MAX_CHOICES: Final = 26
_MAX_TEXT: Final = 100_000


@dataclass(frozen=True, slots=True)
class Item:
    """One question."""

    context: str
    choices: tuple[str, ...]
    gold: int

    @property
    def id(self) -> str:
        """What it is known by in results: a digest of all of it."""
        body = json.dumps([self.context, list(self.choices), self.gold], ensure_ascii=False)
        return hashlib.sha256(body.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def load_task(name: str, data: Path, limit: int) -> list[Item] | None:
    """Return at most `limit` items of a task, always the same ones; None if it is not here.

    Raises:
        UsageError: a row of its file cannot be used.
    """
    if name == SMOKE:
        items = [Item(q.context, q.choices, q.gold) for q in QUESTIONS]
    else:
        lines, where = _lines(name, data)
        if lines is None:
            return None
        items = [_item(line, f"{where}:{n}") for n, line in enumerate(lines, 1) if line.strip()]
    if len(items) <= limit:
        return items
    return random.Random(_SEED).sample(items, limit)


def _lines(name: str, data: Path) -> tuple[list[str] | None, str]:
    """Return the rows of a task, from its file or else a plugin, and where they are from."""
    path = data / f"{name}.jsonl"
    try:
        if path.exists() and not path.is_file():  # a pipe would hold it up without end
            raise UsageError(f"{path} is not a file", hint="put the task's rows there")
        # Not `splitlines`: that one also ends lines at characters that may stand in a JSON text.
        return path.read_text(encoding="utf-8-sig").split("\n"), str(path)
    except FileNotFoundError:
        from colibri_cli.plugin_parts import bench_tasks

        task = bench_tasks((SMOKE, *USUAL)).get(name)
        return None if task is None else [json.dumps(row, default=str) for row in task()], name
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} cannot be read", hint="it must be UTF-8 text") from error


def _item(line: str, where: str) -> Item:
    try:
        row: dict[str, Any] = json.loads(line)
        context, choices, gold = row["ctx"], row["choices"], row["gold"]
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UsageError(f"{where}: no object with ctx, choices and gold") from error
    if not is_question(row):
        raise UsageError(
            f"{where}: ctx must be a text, choices 2 to {_MAX_CHOICES} texts, gold one's index"
        )
    return Item(context, tuple(choices), gold)


def is_question(row: Mapping[str, Any]) -> bool:
    """Whether a row with `ctx`, `choices` and `gold` can be asked."""
    context, choices, gold = row["ctx"], row["choices"], row["gold"]
    return (
        isinstance(context, str)
        and context != ""
        and _is_text(context)
        and isinstance(choices, list)
        and 2 <= len(choices) <= _MAX_CHOICES
        and all(isinstance(c, str) and 0 < len(c) <= _MAX_TEXT and _is_text(c) for c in choices)
        and isinstance(gold, int)
        and not isinstance(gold, bool)
        and 0 <= gold < len(choices)
    )


def _is_text(text: str) -> bool:
    """Whether a text is whole: JSON can write half of a character, which no tokenizer takes."""
    return not any("\ud800" <= character <= "\udfff" for character in text)
