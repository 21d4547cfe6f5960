"""Keeping a chat in the log while it goes on: in a thread, and never in the way of the chat.

The log is opened when the first answer is there. When it cannot be written that is said, the chat
goes on, and what was not written is tried again with the next answer.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from colibri_cli.chat_log.records import LoggedConversation, new_id, title_of
from colibri_cli.errors import LogError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from colibri_cli.chat_log.records import LoggedTurn
    from colibri_cli.chat_log.store import ChatLog

Result = TypeVar("Result")


class Recorder:
    """The log of one chat session.

    Args:
        path: The log; None keeps none.
        model: Name of the model that answers.
        endpoint: Server that answers, or None for an engine of our own.
        warn: Called with one line when the log cannot be written.
    """

    def __init__(
        self, path: Path | None, model: str, endpoint: str | None, warn: Callable[[str], None]
    ) -> None:
        self.model = model
        self.endpoint = endpoint
        self._path = path
        self._warn = warn
        self._log: ChatLog | None = None
        self._conversation: LoggedConversation | None = None
        self._unwritten: list[tuple[LoggedConversation, LoggedTurn]] = []
        self._has_warned = False
        self._lock = asyncio.Lock()

    @property
    def path(self) -> Path | None:
        """The log, None where none is kept."""
        return self._path

    @property
    def conversation(self) -> LoggedConversation | None:
        """The conversation that is kept, None before its first answer."""
        return self._conversation

    def begin(self) -> None:
        """Let the next answer begin a new conversation."""
        self._conversation = None

    def resume(self, conversation: LoggedConversation) -> None:
        """Let the next answer go on with a conversation of the log."""
        self._conversation = conversation

    async def keep(self, turn: LoggedTurn) -> None:
        """Write down a turn, or its continuation."""
        if self._path is None:
            return
        if self._conversation is None:
            self._conversation = LoggedConversation(
                id=new_id(), title=title_of(turn.prompt), model=self.model, endpoint=self.endpoint
            )
        self._unwritten.append((self._conversation, turn))
        await self._write(self._write_turns)

    async def go_back_to(self, turn_id: str | None) -> None:
        """Let the conversation go on from an earlier turn."""
        conversation = self._conversation
        if self._path is not None and conversation is not None:
            await self._write(lambda log: log.set_head(conversation.id, turn_id))

    async def read(self, query: Callable[[ChatLog], Result]) -> Result:
        """Look something up.

        Raises:
            LogError: there is no log, or it cannot be read.
        """
        async with self._lock:
            return await asyncio.to_thread(lambda: query(self._opened()))

    def known(self, count: int) -> list[LoggedConversation]:
        """Return the latest conversations at once, for what is completed while somebody types.

        Raises:
            LogError: there is no log, or it cannot be read.
        """
        return [] if self._lock.locked() else self._opened().conversations(count)

    async def close(self) -> None:
        """Close the log."""
        async with self._lock:
            if self._log is not None:
                await asyncio.to_thread(self._log.close)
                self._log = None

    async def _write(self, change: Callable[[ChatLog], None]) -> None:
        try:
            async with self._lock:
                await asyncio.to_thread(lambda: change(self._opened()))
            self._has_warned = False
        except LogError as error:
            if not self._has_warned:
                self._warn(f"{error.message}; the chat goes on without it")
            self._has_warned = True

    def _write_turns(self, log: ChatLog) -> None:
        while self._unwritten:
            log.add_turn(*self._unwritten[0])
            del self._unwritten[0]

    def _opened(self) -> ChatLog:
        if self._path is None:
            raise LogError("this chat keeps no log", hint="leave out --no-log and COLI_NO_LOG")
        if self._log is None:
            from colibri_cli.chat_log.store import ChatLog

            self._log = ChatLog(self._path)
        return self._log
