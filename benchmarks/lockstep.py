"""A source of pieces as an engine with a batch gives them: one to every answer, then the next.

Depends on nothing, so that servers of both sides of a comparison use the same.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

WORDS = [f" word{n}" for n in range(100)]


class Lockstep:
    """Answers that go on together: nobody gets a piece before everybody asked for one."""

    def __init__(self) -> None:
        self._num_answers = 0
        self._waiting: list[asyncio.Future[None]] = []

    async def pieces(self, count: int) -> AsyncIterator[str]:
        """Yield `count` pieces of text."""
        loop = asyncio.get_running_loop()
        self._num_answers += 1
        try:
            for number in range(count):
                turn = loop.create_future()
                self._waiting.append(turn)
                self._go_on()
                await turn
                yield WORDS[number % len(WORDS)]
        finally:
            self._num_answers -= 1
            self._go_on()

    def _go_on(self) -> None:
        if self._waiting and len(self._waiting) >= self._num_answers:
            waiting, self._waiting = self._waiting, []
            # Not at once: a single answer would never let go of the event loop.
            asyncio.get_running_loop().call_soon(_wake, waiting)


def _wake(waiting: list[asyncio.Future[None]]) -> None:
    for turn in waiting:
        if not turn.done():
            turn.set_result(None)
