"""Answers that later requests go on from: bounded in number, size and age, gone with the process.

An answer belongs to the API key it was made for; to others it does not exist.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from colibri_cli.chat_formats.base import ChatMessage

MAX_RESPONSES: Final = 1024
MAX_BYTES: Final = 64 * 1024 * 1024
LIFETIME_S: Final = 24 * 3600.0


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """One answer.

    Args:
        body: The response object as the client got it.
        messages: The whole conversation up to and with this answer, instructions left out.
        input_items: What the request added, as items of the API.
        num_bytes: Estimate of what keeping it costs.
    """

    body: Mapping[str, Any]
    messages: tuple[ChatMessage, ...]
    input_items: tuple[Mapping[str, Any], ...] = ()
    num_bytes: int = 0


class ResponseStore:
    """Keeps the newest answers.

    Args:
        max_responses: The oldest goes first when there are more.
        max_bytes: Likewise for their estimated size together.
        lifetime_s: After this time an answer is gone.
        clock: Seconds.
    """

    def __init__(
        self,
        max_responses: int = MAX_RESPONSES,
        max_bytes: int = MAX_BYTES,
        lifetime_s: float = LIFETIME_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_responses = max_responses
        self._max_bytes = max_bytes
        self._lifetime_s = lifetime_s
        self._clock = clock
        self._entries: OrderedDict[tuple[str | None, str], tuple[float, StoredResponse]] = (
            OrderedDict()
        )
        self._num_bytes = 0
        self._lock = threading.Lock()  # requests that take long are read in threads

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, owner: str | None, response: StoredResponse) -> None:
        """Keep an answer under its id."""
        key = (owner, str(response.body["id"]))
        with self._lock:
            self._drop(key)
            self._entries[key] = (self._clock(), response)
            self._num_bytes += response.num_bytes
            while self._entries and (
                len(self._entries) > self._max_responses or self._num_bytes > self._max_bytes
            ):
                self._drop(next(iter(self._entries)))

    def get(self, owner: str | None, response_id: str) -> StoredResponse | None:
        """Return an answer, or None if it does not exist (any more)."""
        with self._lock:
            self._expire()
            entry = self._entries.get((owner, response_id))
        return entry[1] if entry is not None else None

    def item(self, owner: str | None, item_id: str) -> Mapping[str, Any] | None:
        """Return an output item of any answer by its id."""
        with self._lock:
            self._expire()
            mine = [kept for (name, _), (_, kept) in self._entries.items() if name == owner]
        for response in reversed(mine):
            for item in response.body["output"]:
                if item["id"] == item_id:
                    found: Mapping[str, Any] = item
                    return found
        return None

    def delete(self, owner: str | None, response_id: str) -> bool:
        """Forget an answer; False if it did not exist."""
        with self._lock:
            self._expire()
            return self._drop((owner, response_id))

    def _expire(self) -> None:
        limit = self._clock() - self._lifetime_s
        while self._entries:
            key, (stored, _) = next(iter(self._entries.items()))
            if stored > limit:
                return
            self._drop(key)

    def _drop(self, key: tuple[str | None, str]) -> bool:
        entry = self._entries.pop(key, None)
        if entry is not None:
            self._num_bytes -= entry[1].num_bytes
        return entry is not None


@dataclass(frozen=True, slots=True)
class OwnedResponses:
    """The store as one client sees it."""

    store: ResponseStore
    owner: str | None = None

    def put(self, response: StoredResponse) -> None:
        """Keep an answer."""
        self.store.put(self.owner, response)

    def get(self, response_id: str) -> StoredResponse | None:
        """Return an answer, or None."""
        return self.store.get(self.owner, response_id)

    def item(self, item_id: str) -> Mapping[str, Any] | None:
        """Return an output item, or None."""
        return self.store.item(self.owner, item_id)

    def delete(self, response_id: str) -> bool:
        """Forget an answer."""
        return self.store.delete(self.owner, response_id)
