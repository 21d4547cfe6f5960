"""The two pipes to the gateway, and what ends them.

Blocking reads and waits stand in threads of their own that feed one inbox, so the engine loop
sleeps while it is idle, looks into the inbox between steps otherwise, and never polls. Signals
arrive in the same inbox. Knows bytes only.

No orphan is left behind: the end of input ends the loop. A watch in a thread of its own ends it
when nobody can read the output any more, or when the parent is gone although somebody else still
holds the pipes; if the loop is stuck in native code then, the watch ends the process.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import threading
import time
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable
    from queue import SimpleQueue
    from types import FrameType

_READ_SIZE: Final = 1 << 16  # what a pipe holds by default
_GRACE_S: Final = 5.0  # for the loop to notice by itself that nobody listens
_PARENT_CHECK_MS: Final = 1000


class Event(Enum):
    """What the inbox holds besides bytes and prompts."""

    END_OF_INPUT = auto()
    OUTPUT_CLOSED = auto()
    INTERRUPT = auto()  # end what is being answered, stay
    TERMINATE = auto()  # end what is being answered, leave


def take_stdout() -> int:
    """Return a private copy of file descriptor 1 and point 1 at standard error.

    From then on no stray `print` and no native write can get between the protocol's lines.
    """
    sys.stdout.flush()
    private = os.dup(1)
    os.dup2(2, 1)
    if sys.platform == "win32":
        import msvcrt

        for fd in (0, private):
            msvcrt.setmode(fd, os.O_BINARY)
    return private


def start_reader(fd: int, inbox: SimpleQueue[object]) -> threading.Thread:
    """Put everything that arrives at `fd` into the inbox, END_OF_INPUT last."""

    def read() -> None:
        with contextlib.suppress(OSError):  # a broken input is an ended input
            while data := os.read(fd, _READ_SIZE):
                inbox.put(data)
        inbox.put(Event.END_OF_INPUT)

    return _start_thread("input", read)


def start_watch(
    fd: int, inbox: SimpleQueue[object], *, parent: int | None, grace_s: float = _GRACE_S
) -> None:
    """Put OUTPUT_CLOSED into the inbox when nobody is left to read `fd`; then end the process.

    Args:
        fd: The output.
        inbox: Told first, so that an idle or stepping loop can leave in order.
        parent: Process to live and die with; None: one that may hand its pipes on.
        grace_s: Time for the loop to leave by itself.
    """
    if not hasattr(select, "poll"):
        return  # the next write, or the end of input, will tell
    poll = select.poll()
    poll.register(fd, 0)  # errors and hang-ups are reported without asking

    def watch() -> None:
        while not poll.poll(None if parent is None else _PARENT_CHECK_MS):
            # The kernel's death signal would do this too, but Linux sends it as well when only the
            # thread that started us ends, and native code delays it.
            if os.getppid() != parent:
                break
        inbox.put(Event.OUTPUT_CLOSED)
        time.sleep(grace_s)
        os._exit(0)  # the loop is inside a step that nobody wants any more

    _start_thread("output watch", watch)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`.

    Raises:
        BrokenPipeError: Nobody reads any more.
    """
    written = os.write(fd, data)
    if written < len(data):
        rest = memoryview(data)[written:]
        while rest:
            rest = rest[os.write(fd, rest) :]


def install_signals(inbox: SimpleQueue[object]) -> None:
    """Let SIGINT and SIGTERM arrive in the inbox, which wakes an idle loop."""

    def on_interrupt(_signum: int, _frame: FrameType | None) -> None:
        inbox.put(Event.INTERRUPT)  # allowed in a handler: a SimpleQueue is reentrant

    def on_terminate(_signum: int, _frame: FrameType | None) -> None:
        inbox.put(Event.TERMINATE)

    signal.signal(signal.SIGINT, on_interrupt)
    signal.signal(signal.SIGTERM, on_terminate)


def _start_thread(name: str, run: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=run, name=f"coli {name}", daemon=True)
    thread.start()
    return thread
