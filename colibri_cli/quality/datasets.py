"""Public data sets that tasks are made of: where each is, and how its rows become questions.

The forms are those that published figures of these tasks go by, without examples before them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Row = Mapping[str, Any]

_TITLE: Final = " [title]"  # HellaSwag's mark of a heading
_BRACKETS: Final = re.compile(r"\[.*?\]")
_LETTERS: Final = "ABCD"


@dataclass(frozen=True, slots=True)
class Source:
    """One place of a data set: its name, its configuration and its split."""

    dataset: str
    config: str
    split: str


@dataclass(frozen=True, slots=True)
class Dataset:
    """A task that can be fetched.

    Args:
        sources: Where it is; the first that answers counts.
        question: Turns a row into `ctx`, `choices` and `gold`. Raises KeyError, IndexError,
            TypeError, ValueError or AttributeError for a row of another shape.
        num_parts: Places of the split that rows are taken from, evenly spread: some are ordered
            by subject, and their beginning would be one subject alone.
    """

    sources: tuple[Source, ...]
    question: Callable[[Row], dict[str, Any]]
    num_parts: int = 10


def _hellaswag(row: Row) -> dict[str, Any]:
    context = f"{row['activity_label']}: {row['ctx_a']} {row['ctx_b'].capitalize()}"
    choices = [f" {_without_marks(ending)}" for ending in row["endings"]]
    return {"ctx": _without_marks(context), "choices": choices, "gold": int(row["label"])}


def _without_marks(text: str) -> str:
    text = _BRACKETS.sub("", text.strip().replace(_TITLE, ". "))
    return text.replace("  ", " ").strip()


def _lettered(row: Row, context: str) -> dict[str, Any]:
    """Return a question whose right choice is named by its label, "B" or "2"."""
    choices = row["choices"]
    gold = list(choices["label"]).index(row["answerKey"])
    return {"ctx": context, "choices": [f" {text}" for text in choices["text"]], "gold": gold}


def _arc(row: Row) -> dict[str, Any]:
    return _lettered(row, f"Question: {row['question']}\nAnswer:")


def _openbookqa(row: Row) -> dict[str, Any]:
    return _lettered(row, row["question_stem"])


def _mmlu(row: Row) -> dict[str, Any]:
    subject = row["subject"].replace("_", " ")
    lines = [
        f"The following are multiple choice questions (with answers) about {subject}.",
        "",
        row["question"].strip(),
        *(f"{letter}. {text}" for letter, text in zip(_LETTERS, row["choices"], strict=True)),
        "Answer:",
    ]
    choices = [f" {letter}" for letter in _LETTERS]
    return {"ctx": "\n".join(lines), "choices": choices, "gold": int(row["answer"])}


def _winogrande(row: Row) -> dict[str, Any]:
    """Return a sentence with a gap: the choices are what may fill it, with all that follows."""
    before, after = row["sentence"].split("_", 1)
    context = before.rstrip()
    space = before[len(context) :]
    choices = [f"{space}{row[name]}{after}" for name in ("option1", "option2")]
    return {"ctx": context, "choices": choices, "gold": int(row["answer"]) - 1}


def _piqa(row: Row) -> dict[str, Any]:
    choices = [f" {row['sol1']}", f" {row['sol2']}"]
    context = f"Question: {row['goal']}\nAnswer:"
    return {"ctx": context, "choices": choices, "gold": int(row["label"])}


DATASETS: Final[Mapping[str, Dataset]] = {
    "hellaswag": Dataset((Source("Rowan/hellaswag", "default", "validation"),), _hellaswag),
    "arc_challenge": Dataset((Source("allenai/ai2_arc", "ARC-Challenge", "test"),), _arc),
    "arc_easy": Dataset((Source("allenai/ai2_arc", "ARC-Easy", "test"),), _arc),
    # 57 subjects, one after the other
    "mmlu": Dataset((Source("cais/mmlu", "all", "test"),), _mmlu, num_parts=40),
    "winogrande": Dataset(
        (Source("allenai/winogrande", "winogrande_xl", "validation"),), _winogrande
    ),
    # The original comes with a loading script, which the viewer may refuse; the first is its copy.
    "piqa": Dataset(
        (
            Source("baber/piqa", "default", "validation"),
            Source("ybisk/piqa", "plain_text", "validation"),
        ),
        _piqa,
    ),
    "openbookqa": Dataset((Source("allenai/openbookqa", "main", "test"),), _openbookqa),
}
