"""Declared tools, and what a parser makes of an answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from colibri_cli.chat_formats.tool_formats.base import (
    CallAborted,
    CallArguments,
    CallFinished,
    CallStarted,
    Text,
    ToolEvent,
    ToolParser,
)


@dataclass(frozen=True)
class Tool:
    """A declared function."""

    name: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object"})
    is_strict: bool = False

    @property
    def declaration(self) -> Mapping[str, Any]:
        return {"name": self.name, "parameters": self.parameters}


@dataclass(frozen=True)
class Choice:
    """What to do with the tools."""

    mode: str = "auto"
    name: str | None = None


def tool(name: str, required: Sequence[str] = (), **types: object) -> Tool:
    """Return a tool; a type is a word or a whole schema."""
    properties = {
        key: kind if isinstance(kind, dict) else {"type": kind} for key, kind in types.items()
    }
    return Tool(name, {"type": "object", "properties": properties, "required": list(required)})


@dataclass
class Answer:
    """An answer put together."""

    content: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)
    aborted: list[str] = field(default_factory=list)

    def values(self) -> list[tuple[str, Any]]:
        """Return the calls with their arguments parsed."""
        return [(name, json.loads(arguments)) for name, arguments in self.calls]


def parsed(parser: ToolParser, pieces: Sequence[str], *, was_cut: bool = False) -> list[ToolEvent]:
    """Return all events, neighbouring texts and arguments joined."""
    events = [event for piece in pieces for event in parser.feed(piece)]
    events += parser.finish(was_cut=was_cut)
    joined: list[ToolEvent] = []
    for event in events:
        last = joined[-1] if joined else None
        if isinstance(event, Text) and isinstance(last, Text):
            joined[-1] = Text(last.text + event.text)
        elif isinstance(event, CallArguments) and isinstance(last, CallArguments):
            joined[-1] = CallArguments(last.text + event.text)
        else:
            joined.append(event)
    return joined


def answer_of(events: Sequence[ToolEvent]) -> Answer:
    """Return what a client gets that does not stream; checks the order of the events."""
    answer = Answer()
    name: str | None = None
    arguments = ""
    for event in events:
        if isinstance(event, Text):
            assert name is None, "text inside a call"
            answer.content += event.text
        elif isinstance(event, CallStarted):
            assert name is None, "a call inside a call"
            name, arguments = event.name, ""
        elif isinstance(event, CallArguments):
            assert name is not None, "arguments without a call"
            arguments += event.text
        elif isinstance(event, CallFinished):
            assert name is not None, "the end of no call"
            answer.calls.append((name, arguments))
            name = None
        elif isinstance(event, CallAborted):
            assert name is not None, "no call to abort"
            answer.aborted.append(event.raw)
            name = None
    assert name is None, "a call without an end"
    return answer
