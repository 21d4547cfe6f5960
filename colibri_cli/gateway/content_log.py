"""What was said, in the log: users' words, so only where `COLI_DEBUG` asks for them.

Answers and prompts have a logger each, which no general verbosity turns on. Texts are written as
Python literals: no text can forge a line of the log.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from colibri_cli.gateway.turns import (
    ReasoningPiece,
    TextPiece,
    ToolArguments,
    ToolCallStarted,
    TurnCompleted,
)
from colibri_cli.logs import ANSWER_LOGGER

if TYPE_CHECKING:
    from colibri_cli.gateway.turns import TurnEvent

_logger: Final = logging.getLogger(ANSWER_LOGGER)


class AnswerLog:
    """Gathers one choice of a turn and logs it when that is over.

    Args:
        request_id: Of whom it is.
        choice: Its number.
    """

    def __init__(self, request_id: str, choice: int) -> None:
        self._name = f"{request_id} choice {choice}"
        self._is_on = _logger.isEnabledFor(logging.DEBUG)
        self._reasoning: list[str] = []
        self._text: list[str] = []
        self._calls: list[str] = []
        self._end = "cut off"

    def take(self, event: TurnEvent) -> None:
        """Note a piece."""
        if not self._is_on:
            return
        match event:
            case ReasoningPiece(text):
                self._reasoning.append(text)
            case TextPiece(text):
                self._text.append(text)
            case ToolCallStarted():
                self._calls.append(f"{event.name} ")
            case ToolArguments():
                self._calls[-1] += event.text
            case TurnCompleted():
                self._end = event.finish.value
            case _:
                pass

    def close(self) -> None:
        """Log what there was."""
        if not self._is_on:
            return
        parts = [("reasoning", "".join(self._reasoning)), ("answer", "".join(self._text))]
        parts += [("call", call) for call in self._calls]
        said = " ".join(f"{name} {text!r}" for name, text in parts if text)
        _logger.debug("%s: %s (%s)", self._name, said or "nothing", self._end)
