"""Tool calls as an upstream server streams them: pieces with an index in, events out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from colibri_cli.chat_formats.tool_formats.base import (
    CallAborted,
    CallArguments,
    CallFinished,
    CallStarted,
)
from colibri_cli.errors import ServerRefused

if TYPE_CHECKING:
    from colibri_cli.backends.base import AnswerEvent


class CallPieces:
    """Joins the pieces of calls; a call is over when the next one begins."""

    def __init__(self) -> None:
        self._index: int | None = None
        self._text: list[str] = []

    def feed(self, pieces: list[Any]) -> list[AnswerEvent]:
        """Take the `tool_calls` of a delta.

        Raises:
            ServerRefused: a piece fits nowhere.
        """
        events: list[AnswerEvent] = []
        for piece in pieces:
            function = piece.get("function") if isinstance(piece, dict) else None
            if not isinstance(function, dict):
                raise _odd()
            events += self._take(piece.get("index", 0), piece.get("id"), function)
        return events

    def finish(self, *, was_cut: bool) -> tuple[list[AnswerEvent], bool]:
        """Return what ends the last call, and whether a limit cut it."""
        if self._index is None:
            return [], False
        self._index = None
        text = "".join(self._text)
        if was_cut and not _is_json(text):
            return [CallAborted(text)], True
        return [CallFinished()], False

    def _take(self, index: object, call_id: object, function: dict[str, Any]) -> list[AnswerEvent]:
        events: list[AnswerEvent] = []
        name, text = function.get("name"), function.get("arguments")
        if index != self._index:
            if not isinstance(name, str) or not isinstance(index, int):
                raise _odd()
            if self._index is not None:
                if index < self._index:
                    raise _odd()
                events.append(CallFinished())
            self._index, self._text = index, []
            events.append(CallStarted(name, call_id if isinstance(call_id, str) else ""))
        if isinstance(text, str) and text:
            self._text.append(text)
            events.append(CallArguments(text))
        return events


def _is_json(text: str) -> bool:
    try:
        json.loads(text or "{}")
    except ValueError:
        return False
    return True


def _odd() -> ServerRefused:
    return ServerRefused("the server sent a piece of a tool call that fits nowhere", status=502)
