"""Sizes for people, in powers of ten."""

from __future__ import annotations


def size(num_bytes: float) -> str:
    """Return bytes as GB with one decimal, below one as MB, below one as bytes."""
    if num_bytes >= 1e9:
        return f"{num_bytes / 1e9:.1f} GB"
    return f"{num_bytes / 1e6:.1f} MB" if num_bytes >= 1e5 else f"{num_bytes:.0f} bytes"
