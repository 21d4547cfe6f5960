"""What the log keeps: conversations, their turns, the files attached to them, and their names."""

from __future__ import annotations

import hashlib
import secrets
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

_ALPHABET: Final = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"  # Crockford's base 32
_RANDOM_BITS: Final = 80
_ULID_LENGTH: Final = 26
SHORT_ID: Final = 10  # characters that hold the time to the millisecond
_MAX_TITLE: Final = 60


def new_id() -> str:
    """Return a ULID: milliseconds, then chance; later ones sort behind earlier ones."""
    number = time.time_ns() // 1_000_000 << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    return "".join(_ALPHABET[number >> 5 * n & 31] for n in reversed(range(_ULID_LENGTH)))


def utc_now() -> str:
    """Return the time as it is written down."""
    return datetime.now(UTC).isoformat(timespec="microseconds")


def title_of(prompt: str) -> str:
    """Return a conversation's title: the first line of its first message, shortened."""
    first = next((line for line in prompt.splitlines() if line.strip()), "")
    line = " ".join(first.split())
    return line if len(line) <= _MAX_TITLE else f"{line[: _MAX_TITLE - 1].rstrip()}…"


@dataclass(frozen=True, slots=True)
class Attachment:
    """A file that went along with a message, as text."""

    name: str
    text: str
    mime: str = "text/plain"

    @property
    def sha256(self) -> str:
        """Digest of the content, under which it is kept once."""
        return hashlib.sha256(self.text.encode("utf-8", "surrogatepass")).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedTurn:
    """One message and its answer.

    Args:
        prompt: What was asked, without the attached files.
        response: What was answered, so far.
        id: Its name.
        parent_id: The turn it follows; None for the first.
        system: System text it was asked under.
        reasoning: What was thought before the answer.
        options: How it was generated.
        prompt_tokens: With `completion_tokens`, `ttft_ms`, `duration_ms`, `tok_s`, `hit_pct`,
            `queue_ms`, `finish`: the figures of the answer; None where unknown.
        error: Why there is no whole answer, or None.
        datetime_utc: When it was asked.
        attachments: Files that went along.
    """

    prompt: str
    response: str
    id: str = field(default_factory=new_id)
    parent_id: str | None = None
    system: str | None = None
    reasoning: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    ttft_ms: int | None = None
    duration_ms: int | None = None
    tok_s: float | None = None
    hit_pct: float | None = None
    queue_ms: int | None = None
    finish: str | None = None
    error: str | None = None
    datetime_utc: str = field(default_factory=utc_now)
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedConversation:
    """A conversation; `head` is the turn it goes on from, None when all were taken back."""

    id: str
    title: str
    model: str
    endpoint: str | None = None
    created: str = field(default_factory=utc_now)
    updated: str = field(default_factory=utc_now)
    tags: str = ""
    head: str | None = None
    num_turns: int = 0

    @property
    def short_id(self) -> str:
        """The beginning of its name that is enough to tell it from others."""
        return self.id[:SHORT_ID]


@dataclass(frozen=True, slots=True)
class SearchHit:
    """A turn that has the words looked for; `excerpt` shows where, found words in `[…]`."""

    conversation: LoggedConversation
    turn_id: str
    excerpt: str
    datetime_utc: str
