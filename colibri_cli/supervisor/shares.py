"""What each key may take of the server: how much at once, how much waiting, how soon, how fast.

Pure rules and bookkeeping; `admission` asks, nobody waits here. Owners are names of keys, or
addresses where keys do not tell clients apart; only keys have limits and figures.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from colibri_protocol.errors import SettingsError
from colibri_protocol.settings import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_ANY: Final = "*"
_PART: Final = re.compile(r"(running|queued|priority|tokens_per_minute)=(-?[0-9]{1,12})")
_LEAST: Final = {"running": 1, "queued": 0, "priority": -1000, "tokens_per_minute": 1}
_MOST_PRIORITY: Final = 1000
_MINUTE_S: Final = 60.0


@dataclass(frozen=True, slots=True)
class Share:
    """Limits of one key; None: only those of the server.

    Args:
        running: Requests that run at once.
        queued: Requests that wait.
        priority: Waiting requests of a higher one go first.
        tokens_per_minute: Of prompts and answers together; up to a minute's worth can be saved up.
    """

    running: int | None = None
    queued: int | None = None
    priority: int = 0
    tokens_per_minute: int | None = None


@dataclass(slots=True)
class OwnerUsage:
    """What a key took since the start; `wait_s` are seconds in the queue, all requests together."""

    admitted: int = 0
    refused: int = 0
    tokens: int = 0
    wait_s: float = 0.0


class Shares:
    """The limits of a server's keys, and what they took.

    Args:
        names: All keys; with fewer than two and no limits, addresses are the owners.
        limits: Key, or `*` for every other one → its limits.
    """

    def __init__(
        self, names: Sequence[str] = (), limits: Mapping[str, Share] | None = None
    ) -> None:
        self._limits = dict(limits or {})
        self._has_owners = len(names) > 1 or bool(self._limits)
        self.usage = {name: OwnerUsage() for name in names} if self._has_owners else {}
        self._levels: dict[str, tuple[float, float]] = {}  # tokens left, and when that was so

    def owner_of(self, key_name: str | None, peer: str) -> str:
        """Return who a request counts for."""
        return key_name if key_name is not None and key_name in self.usage else peer

    def of(self, owner: str) -> Share:
        """Return an owner's limits."""
        if owner not in self.usage:
            return _FREE
        return self._limits.get(owner) or self._limits.get(_ANY) or _FREE

    def note_tokens(self, owner: str, num_tokens: int, now: float) -> None:
        """Count what an answer took, the prompt included."""
        if owner not in self.usage:
            return
        self.usage[owner].tokens += num_tokens
        if self.of(owner).tokens_per_minute is not None:
            self._levels[owner] = (self._level(owner, now) - num_tokens, now)

    def wait_s(self, owner: str, now: float) -> float:
        """Return the seconds until an owner may begin another answer; 0: now."""
        limit = self.of(owner).tokens_per_minute
        level = self._level(owner, now) if limit is not None else 1.0
        if limit is None or level > 0:
            return 0.0
        return (1 - level) * _MINUTE_S / limit

    def _level(self, owner: str, now: float) -> float:
        limit = self.of(owner).tokens_per_minute or 0
        level, then = self._levels.get(owner, (float(limit), now))
        return min(level + (now - then) * limit / _MINUTE_S, float(limit))


def parse_shares(text: str | None, names: Sequence[str]) -> Shares:
    """Return the limits that a setting tells: `NAME:running=N,priority=N;…`.

    Args:
        text: The setting.
        names: Keys of the server.

    Raises:
        SettingsError: it cannot be read, or names a key that does not exist.
    """
    limits: dict[str, Share] = {}
    for entry in filter(None, (part.strip() for part in (text or "").split(";"))):
        name, colon, rest = entry.rpartition(":")
        name = name.strip()
        if not colon or not rest.strip():
            raise _error(f"{entry!r} is not NAME:running=N,…")
        if name != _ANY and name not in names:
            near = nearest(name, set(names))
            known = (
                f"did you mean {near}?" if near else f"the keys are {', '.join(names) or 'none'}"
            )
            raise _error(f"there is no key {name!r} ({known})")
        if name in limits:
            raise _error(f"the key {name!r} has two limits")
        limits[name] = _parse_share(rest)
    return Shares(names, limits)


def _parse_share(text: str) -> Share:
    share = Share()
    for part in text.split(","):
        match = _PART.fullmatch(part.strip())
        if match is None:
            known = f"{', '.join(_LEAST)} with =N of at most 12 digits"
            raise _error(f"{part.strip()!r} is none of {known}")
        name, value = match[1], int(match[2])
        if value < _LEAST[name] or (name == "priority" and value > _MOST_PRIORITY):
            high = f"..{_MOST_PRIORITY}" if name == "priority" else " or more"
            raise _error(f"{name} must be {_LEAST[name]}{high}, not {value}")
        share = replace(share, **{name: value})
    return share


def retry_after_s(seconds: float) -> int:
    """Return a wait in whole seconds, at least 1."""
    return max(1, math.ceil(seconds))


def _error(problem: str) -> SettingsError:
    return SettingsError(
        f"--key-limit: {problem}",
        setting="key_limits",
        source="--key-limit",
        hint="write NAME:running=4,queued=8,priority=1,tokens_per_minute=100000",
    )


_FREE: Final = Share()
