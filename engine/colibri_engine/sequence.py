"""One request on its way through the engine: how far it is and what it has produced.

Plain state, changed by the engine thread only. Knows no model, no cache and no wire.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from colibri_engine.slots import TokenHistory

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from colibri_engine.grammar import Constraint
    from colibri_engine.grammar_guide import Guide
    from colibri_engine.sampling import Sampler

_LONGEST_OPEN: Final = 3  # bytes of a character that may still lack one


class Utf8Hold:
    """Keeps back the bytes of a character until its last one has come.

    Bytes that cannot begin a character pass at once: what they mean is the reader's business.
    """

    __slots__ = ("_held",)

    def __init__(self) -> None:
        self._held = b""

    def feed(self, data: bytes) -> bytes:
        """Take the bytes of one token; return all that may go out now."""
        if not self._held and data.isascii():
            return data
        data = self._held + data
        whole = len(data) - _num_open_bytes(data)
        self._held = data[whole:]
        return data[:whole]

    def flush(self) -> bytes:
        """Return what is still held: the beginning of a character that never ended."""
        held, self._held = self._held, b""
        return held


def _num_open_bytes(data: bytes) -> int:
    """Return how many bytes at the end begin a character without finishing it."""
    for size in range(1, min(_LONGEST_OPEN, len(data)) + 1):
        byte = data[-size]
        if byte & 0xC0 != 0x80:  # not a continuation: the character begins here, or is ASCII
            return size if size < _character_length(byte) else 0
    return 0


def _character_length(first: int) -> int:
    """Return the bytes a character has by its first one; 1 for those that begin none."""
    if 0xC2 <= first <= 0xDF:
        return 2
    if 0xE0 <= first <= 0xEF:
        return 3
    return 4 if 0xF0 <= first <= 0xF4 else 1


@dataclass(slots=True, eq=False, weakref_slot=True)
class Sequence:
    """A request that was accepted.

    `num_fed` counts the rows of it that the slot's cache holds: prompt first, reply after. The last
    token sampled is `pending`: it has no row yet, and gets one only if the reply goes on. A `draft`
    is a guess at what follows it, fed in the same step.
    """

    request_id: int
    slot_idx: int
    prompt: npt.NDArray[np.int32]
    sampler: Sampler
    stop_ids: frozenset[int]
    max_new_tokens: int
    num_logprobs: int | None
    num_reused: int
    accepted_at: float
    baseline: dict[str, float]  # the engine's timers when it was accepted
    constraint: Constraint | None = None  # the grammar its tokens must follow
    guide: Guide | None = None  # one that only helps to draft
    num_guided: int = 0  # tokens of the reply that it has seen
    history: TokenHistory = field(default_factory=lambda: TokenHistory(0))  # that of its slot
    max_draft: int = 0  # tokens that may be guessed per step
    draft: tuple[int, ...] = ()
    draft_kind: str = ""  # see `speculation.base.Proposal`
    draft_source: str = ""
    num_fed: int = 0
    pending: int = -1
    num_generated: int = 0
    num_forwards: int = 0
    last_served: int = 0  # number of the last step that fed prompt rows of it
    first_token_at: float = 0.0
    last_token_at: float = 0.0
    text: Utf8Hold = field(default_factory=Utf8Hold)

    def __post_init__(self) -> None:
        """Start behind the rows found in the cache."""
        self.num_fed = self.num_reused

    @property
    def num_prompt(self) -> int:
        """Tokens of the prompt."""
        return self.prompt.size

    @property
    def num_unfed(self) -> int:
        """Prompt tokens that still need a row; 0 while decoding."""
        return max(self.prompt.size - self.num_fed, 0)

    @property
    def num_wanted(self) -> int:
        """Tokens that the reply may still get."""
        return self.max_new_tokens - self.num_generated

    def tokens_per_second(self) -> float:
        """Return the speed of decoding: tokens after the first over the time since it."""
        elapsed = self.last_token_at - self.first_token_at
        return (self.num_generated - 1) / elapsed if elapsed > 0 else 0.0
