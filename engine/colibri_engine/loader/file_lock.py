"""Locks on open files, between processes; the system gives back those of a process that ends."""

from __future__ import annotations

import importlib
from typing import Any


def lock(descriptor: int) -> None:
    """Wait for the exclusive lock of an open file. Raises OSError where there is none to have."""
    try:
        import fcntl
    except ImportError:
        msvcrt: Any = importlib.import_module("msvcrt")
        msvcrt.locking(descriptor, msvcrt.LK_LOCK, 1)
        return
    fcntl.flock(descriptor, fcntl.LOCK_EX)


def try_lock(descriptor: int) -> bool:
    """Take the exclusive lock of an open file unless another process holds it."""
    try:
        import fcntl
    except ImportError:
        return _try_lock_windows(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _try_lock_windows(descriptor: int) -> bool:
    msvcrt: Any = importlib.import_module("msvcrt")
    try:
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
    except OSError:
        return False
    return True
