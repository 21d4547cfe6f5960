"""Beginning a chat: conversation, log, input, screen and commands put together, and run."""

from __future__ import annotations

import sys
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from colibri_cli.chat.command import built_in_commands
from colibri_cli.chat.commands.history import resumed_notice
from colibri_cli.chat.conversation import ChatSession
from colibri_cli.chat.line_input import PlainInput, typing_ahead
from colibri_cli.chat.loop import ChatLoop
from colibri_cli.chat.recorder import Recorder
from colibri_cli.chat.screen import PlainScreen
from colibri_cli.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from colibri_cli.backends.base import Backend, Generation
    from colibri_cli.chat.command import CommandTable
    from colibri_cli.chat.line_input import LineInput
    from colibri_cli.chat.screen import Screen
    from colibri_cli.chat_log.records import LoggedConversation, LoggedTurn
    from colibri_cli.plugin_types import Tool
    from colibri_protocol.settings import ResolvedSettings

    Resumed = tuple[LoggedConversation, list[LoggedTurn]] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatStart:
    """How a chat begins.

    Args:
        generation: How to generate.
        system: System text; None: that of the resumed conversation, if one is.
        resumed: Conversation of the log to go on with.
        log_file: Where the log is; None keeps none.
        history_file: Where typed lines are kept; None keeps them for this session.
        api_key: Key for servers.
        settings: Effective settings of the command.
        is_terminal: Somebody sits at a terminal that can do more than print lines.
        is_quiet: Say nothing but answers and errors.
        is_markdown: Show answers as Markdown.
        shows_reasoning: Show reasoning.
        tools: Names of tools that the model may call from the beginning.
    """

    generation: Generation
    system: str | None = None
    resumed: Resumed = None
    log_file: Path | None = None
    history_file: Path | None = None
    api_key: str | None = None
    settings: ResolvedSettings | None = None
    is_terminal: bool = False
    is_quiet: bool = False
    is_markdown: bool = True
    shows_reasoning: bool = True
    tools: tuple[str, ...] = ()


async def talk(
    start: ChatStart, backend: Backend, *, thinking: bool | None, endpoint: str | None = None
) -> int:
    """Chat to the end and return the exit code.

    Args:
        start: How it begins.
        backend: Who answers; open.
        thinking: Ask for reasoning, forbid it, or leave it to the model.
        endpoint: Address of the server that answers, None for an engine of our own.
    """
    card = (await backend.models())[0]
    session = ChatSession(backend, start.generation, thinking=thinking)
    source, screen = _ends(start)
    recorder = Recorder(start.log_file, card.id, endpoint, screen.notice)
    if start.resumed is not None:
        conversation, turns = start.resumed
        session.resume(turns)
        recorder.resume(conversation)
        if start.is_terminal and turns:
            screen.show_message(turns[-1].prompt)
            screen.show_answer(turns[-1].response)
        screen.notice(resumed_notice(conversation, len(turns), card.id))
    session.system = start.system or session.system
    commands = built_in_commands(_add_those_of_plugins)
    loop = ChatLoop(session, source, screen, recorder, commands, card)
    loop.api_key, loop.settings = start.api_key, start.settings
    loop.tools.find = _tools_of_plugins
    loop.tools.offer(start.tools)
    with ExitStack() as closing:
        if start.is_terminal:
            closing.enter_context(typing_ahead())
        try:
            return await loop.run()
        finally:
            screen.end_answer()
            await recorder.close()
            await loop.backend.close()


def _add_those_of_plugins(commands: CommandTable) -> None:
    """Load plugins, which takes longer than to begin a chat, when a command is looked for."""
    from colibri_cli.plugin_loader import add_chat_commands

    add_chat_commands(commands)


def _tools_of_plugins() -> Mapping[str, Tool]:
    from colibri_cli.plugin_parts import chat_tools

    return chat_tools()


def find_conversation(path: Path, beginning: str | None) -> Resumed:
    """Return a conversation of the log with its turns: the last one, or that of an id.

    Raises:
        LogError: there is none.
    """
    if not path.exists():
        raise LogError("the log is empty", hint="it begins with the first answer of a chat")
    from colibri_cli.chat_log.store import ChatLog

    with ChatLog(path) as log:
        if beginning is not None:
            conversation = log.find(beginning)
        elif latest := log.conversations(1):
            conversation = latest[0]
        else:
            raise LogError("the log is empty", hint="it begins with the first answer of a chat")
        return conversation, log.turns(conversation)


def _ends(start: ChatStart) -> tuple[LineInput, Screen]:
    if not start.is_terminal:
        is_typed = not start.is_quiet and sys.stdin is not None and sys.stdin.isatty()
        return PlainInput(is_typed=is_typed and sys.stderr.isatty()), PlainScreen(
            is_quiet=start.is_quiet, shows_reasoning=start.shows_reasoning
        )
    from colibri_cli.chat.editor import TerminalInput
    from colibri_cli.terminal.chat_screen import TerminalScreen

    sys.stderr.flush()
    screen = TerminalScreen(
        is_quiet=start.is_quiet,
        shows_reasoning=start.shows_reasoning,
        is_markdown=start.is_markdown,
    )
    return TerminalInput(start.history_file), screen
