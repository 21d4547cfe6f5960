"""Running a command's coroutine so that Ctrl-C and SIGTERM end it cleanly.

Both cancel the coroutine, so that its `finally` blocks end the engine and restore the terminal.
Afterwards SIGINT becomes KeyboardInterrupt (exit code 130) and SIGTERM, SIGHUP `Terminated` (143).
"""

from __future__ import annotations

import asyncio
import signal
from typing import TYPE_CHECKING, Any, Final, TypeVar

from colibri_cli.termination import Terminated

if TYPE_CHECKING:
    from collections.abc import Coroutine

Result = TypeVar("Result")

_ENDING_SIGNALS: Final = ("SIGTERM", "SIGHUP")


def run_async(body: Coroutine[Any, Any, Result]) -> Result:
    """Run to the end and return the result.

    Raises:
        KeyboardInterrupt: Ctrl-C.
        Terminated: SIGTERM or SIGHUP.
    """
    return asyncio.run(_until_signalled(body))


async def _until_signalled(body: Coroutine[Any, Any, Result]) -> Result:
    loop = asyncio.get_running_loop()
    task = asyncio.current_task()
    assert task is not None
    received: list[str] = []

    def end(name: str) -> None:
        received.append(name)
        task.cancel()

    for name in _ENDING_SIGNALS:
        number = getattr(signal, name, None)
        if number is not None:
            try:
                loop.add_signal_handler(number, end, name)
            except (NotImplementedError, RuntimeError):  # Windows, or not the main thread
                continue
    try:
        return await body
    except asyncio.CancelledError:
        if received:
            raise Terminated(received[0]) from None
        raise
