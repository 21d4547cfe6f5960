"""`/help` and `/exit`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.chat.command import Candidate, ChatCommand
from colibri_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from colibri_cli.chat.command import Chat

_KEYS: Final = (
    "//text sends a message that begins with a slash; :name works like /name",
    'Alt+Enter or Ctrl-J begins a new line; """ begins and ends a block of lines',
    "@path in a message attaches the file; Tab completes, Ctrl-R searches what was typed before",
    "Ctrl-X Ctrl-E opens the message in $EDITOR",
    "Ctrl-C stops an answer, clears the line, on an empty one leaves; Ctrl-D leaves",
)


async def show_help(chat: Chat, argument: str) -> None:
    """List the commands, or tell about one."""
    if argument:
        command = chat.commands.find(argument)
        if command is None:
            raise UsageError(f"there is no command {argument}", hint="/help lists them")
        chat.screen.notice(f"/{command.name} {command.usage}".rstrip())
        chat.screen.notice(f"  {command.summary}")
        if command.aliases:
            chat.screen.notice("  also " + ", ".join(f"/{name}" for name in command.aliases))
        return
    width = max(len(f"{c.name} {c.usage}".rstrip()) for c in chat.commands)
    for command in chat.commands:
        chat.screen.notice(f"/{f'{command.name} {command.usage}':<{width}}  {command.summary}")
    for line in _KEYS:
        chat.screen.notice(line)


async def leave(chat: Chat, argument: str) -> None:
    """End the session."""
    chat.leave()


def _names(chat: Chat, beginning: str) -> Iterable[Candidate]:
    return [Candidate(command.name, command.summary) for command in chat.commands]


COMMANDS: Final = (
    ChatCommand("help", "list the commands, or tell about one", show_help, ("?",), "[COMMAND]",
                _names),
    ChatCommand("exit", "leave; a server keeps running", leave, ("quit", "q", "bye")),
)  # fmt: skip
