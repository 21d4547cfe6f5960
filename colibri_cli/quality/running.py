"""Scoring the questions of all tasks with one model; what is done can be kept and gone on with."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.diag.asking import Asker
from colibri_cli.errors import CapabilityMissing, UsageError
from colibri_cli.quality.results import KIND, SCHEMA_VERSION, ItemResult, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from colibri_cli.backends.base import Backend, ModelCard
    from colibri_cli.quality.tasks import Item

_GLM_START: Final = ("[gMASK]", "<sop>")


class ResultFile:
    """A file of results that grows by a line per question; a second run goes on behind them.

    Args:
        path: The file; None keeps nothing.
        head: What a run must share to go on: model, numerics, start tokens.
    """

    def __init__(self, path: Path | None, head: Mapping[str, Any]) -> None:
        self.done: dict[tuple[str, str], ItemResult] = {}
        self._path = path
        if path is None:
            return
        try:
            lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
            if lines:
                self._read(lines, head)
            else:
                path.write_text(json.dumps(head, ensure_ascii=False) + "\n", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"--out: {path} cannot be used ({error.strerror})") from error
        except (ValueError, KeyError, TypeError) as error:
            raise UsageError(
                f"--out: {path} holds no results of `coli bench quality`", hint="name a new file"
            ) from error

    def add(self, result: ItemResult) -> None:
        """Keep one more."""
        self.done[result.task, result.id] = result
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(result.row()) + "\n")

    def _read(self, lines: Sequence[str], head: Mapping[str, Any]) -> None:
        before = json.loads(lines[0])
        if before != dict(head):
            raise UsageError(
                f"--out: {self._path} is of another model or other settings", hint="name a new file"
            )
        for number, line in enumerate(lines[1:], 2):
            try:
                row = json.loads(line)
            except ValueError:
                if number == len(lines):  # cut off while it was written
                    continue
                raise
            logprobs, lengths = tuple(row["logprobs"]), tuple(row["lengths"])
            found = ItemResult(row["task"], row["id"], row["gold"], logprobs, lengths)
            self.done[found.task, found.id] = found


def start_of(card: ModelCard) -> str:
    """Return the tokens that texts of this model begin with; "" where none are needed."""
    special = card.details.get("special_tokens")
    if isinstance(special, dict) and all(token in special for token in _GLM_START):
        return "".join(_GLM_START)
    return ""


async def run_tasks(
    backend: Backend,
    tasks: Mapping[str, Sequence[Item]],
    out: Path | None,
    tell: Callable[[str, int, int], None],
    *,
    has_start: bool = True,
) -> dict[str, Any]:
    """Open the backend, score everything, and return the report.

    Args:
        backend: Closed again at the end.
        tasks: Questions by task.
        out: File to keep results in as they come.
        tell: Called with task, questions done and questions in all.
        has_start: Texts begin with the model's start tokens.

    Raises:
        CapabilityMissing: the engine cannot score texts.
        UsageError: the file of results is of another run.
    """
    try:
        await backend.open()
        card = (await backend.models())[0]
        asker = Asker(backend, card)
        if not asker.can_score:
            raise CapabilityMissing(
                "the engine announced no grammars or log-probabilities: it cannot score texts",
                hint="leave out --engine-bin",
            )
        start = start_of(card) if has_start else ""
        head = {
            "kind": KIND,
            "schema_version": SCHEMA_VERSION,
            "model": card.id,
            "family": card.family,
            "file_bytes": card.file_bytes,
            "numerics": card.details.get("numerics"),
            "start_tokens": start,
        }
        kept = ResultFile(out, head)
        for task, items in tasks.items():
            for number, item in enumerate(items, 1):
                if (task, item.id) not in kept.done:
                    scores = [await asker.score(item.context, c, start=start) for c in item.choices]
                    logprobs = tuple(score.logprob for score in scores)
                    lengths = tuple(map(len, item.choices))
                    kept.add(ItemResult(task, item.id, item.gold, logprobs, lengths))
                tell(task, number, len(items))
    finally:
        await backend.close()
    found = {task: [kept.done[task, item.id] for item in items] for task, items in tasks.items()}
    summaries = [summary(task, results) for task, results in found.items()]
    return {
        **head,
        "tasks": summaries,
        "mean_acc_norm": round(sum(row["acc_norm"] for row in summaries) / len(summaries), 2),
        "items": [result.row() for results in found.values() for result in results],
    }
