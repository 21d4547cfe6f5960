"""Where the user's lines come from: plain lines here, the editor of a terminal in `editor`."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol

from colibri_cli.chat.slash import is_open_block

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from colibri_cli.chat.command import Chat


class LineInput(Protocol):
    """One source of lines."""

    @property
    def erases(self) -> bool:
        """Whether what was typed is gone from the screen when it is sent."""
        ...

    @property
    def is_typed(self) -> bool:
        """Whether somebody types the lines, who stops an answer with Ctrl-C."""
        ...

    def assist(self, chat: Chat) -> None:
        """Help whoever types with what this chat knows."""
        ...

    async def read(self, default: str = "") -> str | None:
        """Return the next message or command; None when the user leaves.

        Args:
            default: Text to begin with, where it can be edited.

        Raises:
            KeyboardInterrupt: Ctrl-C on an empty line.
        """
        ...


class PlainInput:
    """Standard input, one message per line; a block between three quotation marks is one too.

    A thread reads, so that the loop stays free and leaving never waits for another line.

    Args:
        is_typed: Somebody types: each line is asked for, and Ctrl-C there does not end the program.
    """

    erases = False

    def __init__(self, *, is_typed: bool = False) -> None:
        self.is_typed = is_typed
        self._loop = asyncio.get_running_loop()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        threading.Thread(target=self._read_all, daemon=True, name="stdin").start()

    def assist(self, chat: Chat) -> None:
        """Lines that are typed without an editor are not completed."""

    async def read(self, default: str = "") -> str | None:
        """Return the next line or block."""
        text = await self._line("> ")
        while text is not None and is_open_block(text):
            line = await self._line("  ")
            if line is None:
                return text
            text = f"{text}\n{line}"
        return text

    async def _line(self, mark: str) -> str | None:
        """Return the next line; the terminal throws away what was typed before Ctrl-C."""
        if not self.is_typed:
            return await self._lines.get()
        line = asyncio.ensure_future(self._lines.get())
        interrupts: list[bool] = []

        def interrupt() -> None:
            interrupts.append(line.cancel())

        with at_interrupt(interrupt):
            sys.stderr.write(mark)
            sys.stderr.flush()
            try:
                return await line
            except asyncio.CancelledError:
                sys.stderr.write("\n")
                if not interrupts:  # SIGTERM and SIGHUP end the chat, whatever is being typed
                    raise
                raise KeyboardInterrupt from None

    def _read_all(self) -> None:
        try:
            if sys.stdin is not None:
                for raw in _lines_of(sys.stdin.fileno()):
                    self._put(raw.decode("utf-8", "replace").rstrip("\r"))
        except (OSError, ValueError):
            pass
        self._put(None)

    def _put(self, line: str | None) -> None:
        try:
            self._loop.call_soon_threadsafe(self._lines.put_nowait, line)
        except RuntimeError:  # the loop has ended meanwhile
            return


@contextmanager
def at_interrupt(act: Callable[[], object]) -> Iterator[None]:
    """Do something at Ctrl-C, where the loop can be told of it; elsewhere it ends the program."""
    loop = asyncio.get_running_loop()
    previous = signal.getsignal(signal.SIGINT)
    try:
        loop.add_signal_handler(signal.SIGINT, act)
    except (NotImplementedError, RuntimeError):  # Windows, or not the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        signal.signal(signal.SIGINT, previous)


@contextmanager
def typing_ahead() -> Iterator[None]:
    """Keep keys pressed while no editor is active as they are, and do not show them.

    Otherwise the terminal would turn Enter into a line feed, which the editor takes for "new
    line", and mix what is typed into an answer that is just arriving. Ctrl-C still interrupts.
    """
    try:
        import termios
    except ImportError:  # Windows consoles do not do that
        yield
        return
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    wanted = termios.tcgetattr(descriptor)
    wanted[0] &= ~termios.ICRNL
    wanted[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(descriptor, termios.TCSADRAIN, wanted)
    try:
        yield
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


def _lines_of(descriptor: int) -> Iterator[bytes]:
    """Yield lines as they come.

    Not through the buffer of standard input: its lock, held while a terminal keeps us waiting,
    would make Python abort when the chat is left.
    """
    rest = b""
    while chunk := os.read(descriptor, 65536):
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest
