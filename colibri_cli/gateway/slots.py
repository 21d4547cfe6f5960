"""SlotChooser: which KV slot a request should go to, so that its conversation is still there.

A slot remembers the conversation that used it last: what the client says its requests share, and
the stable opening of the messages. A conversation that comes back goes to its slot. For a new one
an engine that can is left the choice: it knows which slot holds the longest common prefix, and
copies what another slot has. For engines that cannot, an unused slot is taken, else one whose
conversation the new one mostly shares, else the one unused for longest.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from colibri_cli.gateway.turns import TurnRequest
    from colibri_cli.supervisor.waiting_line import Pick


@dataclass(frozen=True, slots=True)
class ConversationKey:
    """What tells conversations apart.

    Args:
        session: What the client says its requests share, or None.
        opening: Digest of the messages up to the first user message; "" for a plain completion.
        messages: Digest of each message, for comparing conversations.
    """

    session: str | None
    opening: str
    messages: tuple[bytes, ...]

    def is_same(self, other: ConversationKey) -> bool:
        """Whether both are turns of one conversation."""
        return bool(self.opening) and (self.session, self.opening) == (other.session, other.opening)

    def num_shared(self, other: ConversationKey) -> int:
        """Return how many leading messages are equal."""
        count = 0
        for mine, theirs in zip(self.messages, other.messages, strict=False):
            if mine != theirs:
                break
            count += 1
        return count


@dataclass(slots=True)
class _Content:
    key: ConversationKey
    used: int


class SlotChooser:
    """Remembers which conversation each slot holds.

    Args:
        num_slots: How many slots the engine has.
    """

    def __init__(self, num_slots: int) -> None:
        self._num_slots = num_slots
        self._contents: dict[int, _Content] = {}
        self._clock = 0

    def pick_for(self, key: ConversationKey, *, engine_chooses: bool) -> Pick:
        """Return the choice among free slots that the scheduler makes when it is this one's turn.

        Args:
            key: Of the conversation.
            engine_chooses: The engine can be left the choice.
        """

        def pick(free: tuple[int, ...], must_name: bool) -> int | None:
            if self._num_slots == 1:
                return 0
            known = self._slot_of(key, free)
            if known is not None:
                return known
            is_left = engine_chooses and not must_name
            return None if is_left else self._fallback(key, free)

        return pick

    def learn(self, slot: int, key: ConversationKey) -> None:
        """Note which conversation a slot holds from now on."""
        self._clock += 1
        self._contents[slot] = _Content(key, self._clock)

    def forget(self) -> None:
        """Note that all slots are empty: the engine is a new one."""
        self._contents.clear()

    def _slot_of(self, key: ConversationKey, free: tuple[int, ...]) -> int | None:
        """Return the free slot this conversation used last."""
        mine = [s for s in free if s in self._contents and key.is_same(self._contents[s].key)]
        return max(mine, key=lambda s: self._contents[s].used) if mine else None

    def _fallback(self, key: ConversationKey, free: tuple[int, ...]) -> int | None:
        unused = [slot for slot in free if slot not in self._contents]
        if unused or not free:
            return unused[0] if unused else None
        shared = {slot: key.num_shared(self._contents[slot].key) for slot in free}
        similar = [s for s in free if 2 * shared[s] >= len(self._contents[s].key.messages) > 0]
        if similar:
            return max(similar, key=lambda s: (shared[s], -self._contents[s].used))
        return min(free, key=lambda s: self._contents[s].used)


def conversation_key(turn: TurnRequest) -> ConversationKey:
    """Return the key of a request's conversation.

    The opening runs to the first user message, so it stays the same for all later turns.
    """
    if turn.conversation is None:
        return ConversationKey(turn.session_key, "", ())
    digests: list[bytes] = []
    opening = hashlib.sha256()
    is_open = True
    for message in turn.conversation.messages:
        digest = hashlib.sha256(f"{message.role}\0{message.content}".encode()).digest()
        digests.append(digest)
        if is_open:
            opening.update(digest)
            is_open = message.role != "user"
    return ConversationKey(turn.session_key, opening.hexdigest(), tuple(digests))
