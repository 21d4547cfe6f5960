"""What can be completed in a line: names of commands, what stands behind them, paths of files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from colibri_cli.chat.command import PREFIXES, Candidate

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.chat.command import Chat


@dataclass(frozen=True, slots=True)
class Completion:
    """How the text before the cursor can be completed.

    Args:
        replaced: The end of the text that a candidate replaces.
        candidates: What may stand there; empty where it is a path.
        is_path: A path stands there.
    """

    replaced: str
    candidates: Sequence[Candidate] = ()
    is_path: bool = False


def completion_of(text: str, chat: Chat) -> Completion | None:
    """Return how a text can be completed; None where nothing is to be guessed."""
    if not is_completed(text):
        return None
    if text[0] not in PREFIXES:
        return Completion(_mention(text), is_path=True)
    name, space, argument = text[1:].partition(" ")
    if not space:
        names = [Candidate(command.name, command.summary) for command in chat.commands]
        return Completion(name, _fitting(names, name))
    command = chat.commands.find(name)
    if command is None:
        return None
    argument = argument.lstrip(" ")
    if command.is_path:
        return Completion(argument, is_path=True)
    if command.complete is None:
        return None
    return Completion(argument, _fitting(command.complete(chat, argument), argument))


def is_completed(text: str) -> bool:
    """Whether completing is offered here: in a command, or behind an @."""
    if text[:1] == "/" and text[:2] != "//" and "\n" not in text:
        return True
    word = text.rsplit(maxsplit=1)[-1] if text and not text[-1].isspace() else ""
    return word.startswith("@") and len(word) > 1


def _mention(text: str) -> str:
    return text.rsplit(maxsplit=1)[-1].removeprefix("@")


def _fitting(candidates: object, beginning: str) -> list[Candidate]:
    assert hasattr(candidates, "__iter__")
    lowered = beginning.lower()
    return [c for c in candidates if c.text.lower().startswith(lowered)]
