"""What a line typed into the chat means: a message, or a command."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from colibri_cli.chat.command import PREFIXES

if TYPE_CHECKING:
    from colibri_cli.chat.command import ChatCommand, CommandTable

BLOCK: Final = '"""'


@dataclass(frozen=True, slots=True)
class Message:
    """Text for the model; `is_literal`: names of files in it are just words."""

    text: str
    is_literal: bool = False


@dataclass(frozen=True, slots=True)
class Invocation:
    """A command with what follows its name."""

    command: ChatCommand
    argument: str


@dataclass(frozen=True, slots=True)
class UnknownCommand:
    """A line that looks like a command but is none; it is not sent."""

    name: str


Meaning = Message | Invocation | UnknownCommand | None


def parse_line(line: str, commands: CommandTable) -> Meaning:
    """Return what a line means; None for a line without anything in it."""
    stripped = line.strip()
    if not stripped:
        return None
    if stripped == "exit" and (leave := commands.find("exit")) is not None:
        return Invocation(leave, "")
    if stripped.startswith("//"):
        return Message(stripped[1:])
    if stripped.startswith(BLOCK) and stripped.endswith(BLOCK) and len(stripped) >= 6:
        return Message(stripped[3:-3].strip("\n"), is_literal=True)
    if stripped[0] not in PREFIXES:
        return Message(line)
    name, _, argument = stripped[1:].partition(" ")
    command = commands.find(name) if name and "\n" not in name else None
    if command is not None and ("\n" not in argument or command.usage):
        return Invocation(command, argument.strip())
    if stripped[0] == ":" or "\n" in stripped:
        return Message(line)  # ":)" and the like are ordinary text, and so is a pasted listing
    return UnknownCommand(f"/{name.split()[0]}" if name.split() else "/")


def is_open_block(text: str) -> bool:
    """Whether the text began a block with three quotation marks and did not end it."""
    stripped = text.strip()
    is_closed = stripped.endswith(BLOCK) and len(stripped) >= 6
    return stripped.startswith(BLOCK) and not is_closed
