"""A conversation as a document: Markdown to read, JSON to take elsewhere."""

from __future__ import annotations

import json
import re
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_cli.chat_log.records import LoggedConversation, LoggedTurn

SCHEMA_VERSION: Final = 1
_FENCES: Final = re.compile(r"^ {0,3}(`{3,})", re.MULTILINE)


def as_markdown(conversation: LoggedConversation, turns: Sequence[LoggedTurn]) -> str:
    """Return the conversation as Markdown, attached files in fenced blocks."""
    parts = [f"# {conversation.title}", f"{conversation.model} · {conversation.created}"]
    if turns and turns[-1].system:
        parts += ["## System", turns[-1].system]
    for turn in turns:
        parts += ["## User", *(fenced(file.name, file.text) for file in turn.attachments)]
        parts += [turn.prompt, "## Assistant", turn.response]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


def as_json(conversation: LoggedConversation, turns: Sequence[LoggedTurn]) -> str:
    """Return the conversation with all its figures as one JSON document."""
    document: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "conversation": asdict(conversation),
        "responses": [asdict(turn) for turn in turns],
    }
    return json.dumps(document, ensure_ascii=False, indent=2) + "\n"


def fenced(name: str, text: str) -> str:
    """Return a file as a fenced block under its name; the fence is longer than any in the file."""
    longest = max((len(mark) for mark in _FENCES.findall(text)), default=2)
    fence = "`" * max(3, longest + 1)
    end = "" if text.endswith("\n") or not text else "\n"
    return f"{name}:\n{fence}\n{text}{end}{fence}"
