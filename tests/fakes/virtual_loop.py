"""An event loop whose time stands still until there is nothing left to do, and then jumps."""

from __future__ import annotations

import asyncio
import selectors
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


class _NeverWaiting(selectors.SelectSelector):
    """Reports what is ready now; whoever would have waited finds the time gone by instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1000.0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        assert ready or timeout is not None, "everybody waits for ever"
        return ready


class VirtualLoop(asyncio.SelectorEventLoop):
    def __init__(self) -> None:
        self._clock = _NeverWaiting()
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now


def run_virtual(body: Callable[[], Coroutine[Any, Any, None]]) -> None:
    """Run one test body in virtual time."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        runner.run(body())
