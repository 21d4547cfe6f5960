"""Work of seconds beside the event loop, so that nobody else waits for it.

A body of megabytes can take that long to check and to write down as a prompt. Threads of Python
share one lock, so nothing gets faster; but the loop has its turn every few milliseconds meanwhile.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

Result = TypeVar("Result")

LONG_FROM_BYTES: Final = 128 * 1024  # some ten milliseconds; most requests stay below
# Each one takes its share of the lock from the loop.
_threads: Final = ThreadPoolExecutor(max_workers=2, thread_name_prefix="coli work")


async def run_work(num_bytes: int, work: Callable[[], Result]) -> Result:
    """Return what `work` does: at once if it has little to do, else in a thread.

    Args:
        num_bytes: Size of what it works on.
        work: Touches nothing that the loop changes.
    """
    if num_bytes < LONG_FROM_BYTES:
        return work()
    return await asyncio.get_running_loop().run_in_executor(_threads, work)
