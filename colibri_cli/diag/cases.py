"""What the harness asks: prompts with a known word, passages, questions with choices.

Small and self-contained, so that a run needs no network. The figures say whether a build changed,
not how good a model is: for that there are data sets.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class SmokeCase:
    """A prompt, and what one of its first lines should contain (any of these; none: anything)."""

    name: str
    group: str
    prompt: str
    expected: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Passage:
    """A text that is scored: how likely the model finds `text` behind `start`."""

    name: str
    start: str
    text: str


@dataclass(frozen=True, slots=True)
class Question:
    """A beginning and four ways to go on, of which the one at `gold` is right."""

    context: str
    choices: tuple[str, ...]
    gold: int


SMOKE_CASES: Final = (
    SmokeCase("capital", "factual", "What is the capital of France?", ("Paris",)),
    SmokeCase("water", "factual", "Which two elements is water made of?", ("hydrogen", "Hydrogen")),
    SmokeCase("sum", "math", "What is 2 + 3? Answer with the number.", ("5", "five")),
    SmokeCase("product", "math", "What is 7 times 8? Answer with the number.", ("56",)),
    SmokeCase(
        "order",
        "reasoning",
        "Anna is taller than Ben, and Ben is taller than Carl. Who is the tallest?",
        ("Anna",),
    ),
    SmokeCase("weekday", "reasoning", "Which day comes after Monday?", ("Tuesday",)),
    SmokeCase(
        "function", "code", "Write a Python function that adds two numbers.", ("def ", "return")
    ),
    SmokeCase("query", "code", "Write an SQL query for all rows of the table users.", ("SELECT",)),
    SmokeCase("sky", "explanation", "Why is the sky blue?", ("scatter", "light")),
    SmokeCase("rain", "creative", "Write two lines about rain."),
    SmokeCase("greeting", "edge", "hi"),
    SmokeCase("unicode", "edge", "Wie heißt „Katze“ auf Englisch? 🐈", ("at",)),
)

PASSAGES: Final = (
    Passage(
        "prose",
        "The old lighthouse stood at the end of the pier,",
        " where the wind never stopped. Every evening the keeper climbed the stairs and lit the"
        " lamp, and every morning he came down again and slept until noon. He had done so for"
        " thirty years, and he did not think of doing anything else.",
    ),
    Passage(
        "science",
        "When water freezes,",
        " its molecules arrange themselves in a lattice that takes more room than the liquid did."
        " This is why ice floats, and why pipes burst in winter. Salt lowers the temperature at"
        " which this happens.",
    ),
    Passage(
        "code",
        "def mean(values):\n",
        "    total = 0\n    for value in values:\n        total += value\n"
        "    return total / len(values)\n",
    ),
)

QUESTIONS: Final = (
    Question("The capital of Italy is", (" Rome", " Madrid", " Oslo", " Cairo"), 0),
    Question("Snow is usually", (" white", " green", " hot", " loud"), 0),
    Question("A week has", (" three days", " seven days", " twelve days", " ninety days"), 1),
    Question("The opposite of hot is", (" warm", " tall", " cold", " sharp"), 2),
    Question("Bees make", (" milk", " wool", " bread", " honey"), 3),
    Question("The sun rises in the", (" north", " east", " south", " west"), 1),
    Question("To cut paper, use", (" soup", " a pillow", " scissors", " a cloud"), 2),
    Question("Fish live in", (" trees", " water", " engines", " books"), 1),
    Question("One plus one equals", (" two", " nine", " forty", " seven"), 0),
    Question("A doctor works in a", (" volcano", " hospital", " piano", " shoe"), 1),
)

LONG_PROMPT: Final = (
    "Explain step by step how bread is made, from grain to loaf, and why each step matters."
)
