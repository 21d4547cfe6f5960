"""Commands of a chat: what one is, what it may do, and the table that finds them by name.

Built-in commands are modules of `chat.commands`, each with a tuple `COMMANDS`; others join the
table through `CommandTable.add`.
"""

from __future__ import annotations

import importlib
import pkgutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from colibri_cli.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator

    from colibri_cli.backends.base import Backend, ModelCard
    from colibri_cli.chat.conversation import ChatSession, Turn
    from colibri_cli.chat.line_input import LineInput
    from colibri_cli.chat.recorder import Recorder
    from colibri_cli.chat.screen import Screen
    from colibri_cli.chat.tools import ToolBox
    from colibri_protocol.settings import ResolvedSettings

PREFIXES: Final = "/:"  # the colon is the older one


class Chat(Protocol):
    """What a command may use and do."""

    session: ChatSession
    screen: Screen
    source: LineInput
    recorder: Recorder
    commands: CommandTable
    tools: ToolBox
    card: ModelCard
    shows_figures: bool
    api_key: str | None  # for servers
    settings: ResolvedSettings | None  # of the command; None: those of files and variables

    @property
    def backend(self) -> Backend:
        """Who answers."""
        ...

    async def ask(self, text: str) -> None:
        """Send a message with the files that wait, show the answer and keep it."""
        ...

    async def ask_again(self, turn: Turn) -> None:
        """Send a message of before with its own files."""
        ...

    async def continue_answer(self) -> None:
        """Let the last answer go on."""
        ...

    async def switch(self, backend: Backend, endpoint: str | None) -> None:
        """Go on with somebody else, who is open; the present one is closed."""
        ...

    def leave(self) -> None:
        """End the session after this command."""
        ...


@dataclass(frozen=True, slots=True)
class Candidate:
    """A way to complete what is typed: the text, and what it means."""

    text: str
    meaning: str = ""


@dataclass(frozen=True, slots=True)
class ChatCommand:
    """One command.

    Args:
        name: Its name, without the slash.
        summary: One line about what it does.
        run: Does it; gets the chat and what stands behind the name. Errors of ours are shown.
        aliases: Further names.
        usage: What may stand behind the name, for the help.
        complete: Returns what may stand there, given its beginning; None: nothing can be guessed.
        is_path: A file's name stands there.
    """

    name: str
    summary: str
    run: Callable[[Chat, str], Awaitable[None]]
    aliases: tuple[str, ...] = ()
    usage: str = ""
    complete: Callable[[Chat, str], Iterable[Candidate]] | None = None
    is_path: bool = False


class CommandTable:
    """Commands by name.

    Args:
        commands: Those that are known.
        more: Adds further ones when the first is looked for; nobody waits for it before that.
    """

    def __init__(
        self,
        commands: Iterable[ChatCommand] = (),
        more: Callable[[CommandTable], None] | None = None,
    ) -> None:
        self._by_name: dict[str, ChatCommand] = {}
        self._commands: list[ChatCommand] = []
        self._more: Callable[[CommandTable], None] | None = None
        for command in commands:
            self.add(command)
        self._more = more

    def add(self, command: ChatCommand) -> None:
        """Add a command.

        Raises:
            UsageError: one of its names is taken.
        """
        for name in (command.name, *command.aliases):
            if (known := self._by_name.get(name)) is not None:
                raise UsageError(f"the chat command /{name} exists already: {known.summary}")
        self._by_name.update(dict.fromkeys((command.name, *command.aliases), command))
        self._commands.append(command)

    def __iter__(self) -> Iterator[ChatCommand]:
        self._complete()
        return iter(sorted(self._commands, key=lambda command: command.name))

    def find(self, name: str) -> ChatCommand | None:
        """Return the command of this name."""
        known = self._by_name.get(name.lower().lstrip(PREFIXES))
        if known is None and self._more is not None:
            self._complete()
            return self.find(name)
        return known

    def _complete(self) -> None:
        more, self._more = self._more, None
        if more is not None:
            more(self)


def built_in_commands(more: Callable[[CommandTable], None] | None = None) -> CommandTable:
    """Return a table of the commands in `chat.commands`; `more` adds to it when it is used."""
    package = importlib.import_module("colibri_cli.chat.commands")
    names = [module.name for module in pkgutil.iter_modules(package.__path__)]
    modules = [importlib.import_module(f"{package.__name__}.{name}") for name in sorted(names)]
    return CommandTable((command for module in modules for command in module.COMMANDS), more)


def number_of(argument: str, what: str) -> int | None:
    """Return the number that may stand behind a command, None if nothing does.

    Raises:
        UsageError: something else stands there.
    """
    if not argument:
        return None
    if not argument.isdecimal() or int(argument) < 1:
        raise UsageError(f"{argument!r} is not the number of {what}", hint="they count from 1")
    return int(argument)
