"""Times for people: `12s`, `3m05s`, `2h10m`."""

from __future__ import annotations


def duration(seconds: float) -> str:
    """Return a duration in at most two units."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole}s"
    if whole < 3600:
        return f"{whole // 60}m{whole % 60:02d}s"
    return f"{whole // 3600}h{whole % 3600 // 60:02d}m"
