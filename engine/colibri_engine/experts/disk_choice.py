"""Which way of reading a disk is taken: the measured one that gives most, where it matters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from colibri_engine.experts.disk_speed import Access, Rate

# A way that spares the processor a copy, or threads, is taken unless it costs more than this.
_WORTH: Final = 0.05


@dataclass(frozen=True, slots=True)
class DiskChoice:
    """A way to read, and why.

    Args:
        access: The way.
        bytes_per_s: What it gave.
        reason: In words.
    """

    access: Access
    bytes_per_s: float
    reason: str


def choose(rates: Sequence[Rate]) -> DiskChoice:
    """Choose among rates of one load.

    Reads around the page cache are preferred to those through it, and io_uring to threads, unless
    they are slower by more than a twentieth: they cost the processor less, and memory that no
    budget counts stays free.

    Args:
        rates: At least one.
    """
    ranked = sorted(rates, key=lambda rate: (not rate.access.is_direct, rate.access.mode))
    best = max(rates, key=lambda rate: rate.bytes_per_s)
    chosen = next(rate for rate in ranked if rate.bytes_per_s >= best.bytes_per_s * (1 - _WORTH))
    others = [rate for rate in ranked if rate is not chosen]
    reason = f"{speed(chosen.bytes_per_s)}"
    if others:
        reason += " against " + ", ".join(
            f"{speed(rate.bytes_per_s)} ({rate.access})" for rate in others
        )
    if any(not rate.is_cold for rate in rates):
        reason += "; buffered reads were partly from memory, which the system did not give up"
    return DiskChoice(chosen.access, chosen.bytes_per_s, reason)


def speed(bytes_per_s: float) -> str:
    """Return "1.23 GB/s"."""
    return f"{bytes_per_s / 1e9:.2f} GB/s"
