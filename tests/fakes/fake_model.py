"""A model whose logits are a function of the exact tokens in the cache, and of nothing else.

It has no weights and still punishes every bookkeeping fault: a row at a wrong position, a stale
row left in a cache or a cache shared by two sequences changes the logits or fails an assertion.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable


class FakeKvCache:
    """Keeps the token ids themselves where a real cache keeps keys and values.

    Args:
        has_state: Whether it behaves like one with recurrent state: only its end, its beginning
            and where snapshots were taken can be gone back to.
    """

    BLOCK = 64

    def __init__(self, *, has_state: bool = False) -> None:
        self.ids: list[int] = []
        self.capacity = 0
        self.max_capacity = 1 << 20
        self.has_state = has_state
        self._snapshots: list[int] = []

    @property
    def length(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        return 8 * self.capacity

    def reserve(self, positions: int) -> None:
        if positions > self.max_capacity:
            raise MemoryError(f"no memory to grow the KV cache to {positions} positions")
        self.capacity = max(self.capacity, -(-positions // self.BLOCK) * self.BLOCK)

    def restorable(self, length: int) -> int:
        if not 0 <= length <= len(self.ids):
            raise ValueError(f"{len(self.ids)} positions cannot be restored to {length}")
        if not self.has_state or length == len(self.ids):
            return length
        return max((kept for kept in self._snapshots if kept <= length), default=0)

    def snapshot(self) -> None:
        self._snapshots = [*self._snapshots, len(self.ids)][-4:]

    def truncate(self, length: int) -> None:
        if self.restorable(length) != length:
            raise ValueError(f"cannot truncate {len(self.ids)} positions to {length}")
        del self.ids[length:]
        self._snapshots = [kept for kept in self._snapshots if kept <= length]

    def copy_prefix(self, other: FakeKvCache, length: int) -> None:
        if other.restorable(length) != length:
            raise ValueError(f"no prefix of {length}")
        self.reserve(length)
        self.ids = other.ids[:length]
        self._snapshots = []


class FakeBatch:
    """Which cache and position each row of a step belongs to."""

    def __init__(self) -> None:
        self.segments: list[tuple[FakeKvCache, int, int]] = []

    @property
    def rows(self) -> int:
        return sum(rows for _, _, rows in self.segments)

    def set(self, segments: list[tuple[FakeKvCache, int, int]]) -> None:
        caches = [id(cache) for cache, _, _ in segments]
        if len(set(caches)) != len(caches):
            raise ValueError("two segments of one cache")
        for cache, start, rows in segments:
            if start > cache.length or rows < 1:
                raise ValueError(f"rows {start}..{start + rows} after {cache.length}")
            cache.reserve(start + rows)
            if cache.has_state and start != cache.length:
                raise ValueError(f"row {start} does not follow the state of {cache.length}")
        self.segments = list(segments)


@dataclass
class FakeConfig:
    model_type: str = "fake"
    vocab_size: int = 260
    num_layers: int = 2
    num_experts: int = 0
    num_experts_per_token: int = 0
    max_positions: int = 4096


@dataclass
class FakeModel:
    """Deterministic logits from the history; scripts and faults on demand.

    Attributes:
        next_token: When set, given the history, names the token whose logit is far above the rest.
        fault: Called with the ids of each forward before it runs; may raise.
        has_state: Whether its caches can only be cut back to certain lengths.
    """

    config: FakeConfig = field(default_factory=FakeConfig)
    next_token: Callable[[list[int]], int] | None = None
    fault: Callable[[list[int]], None] | None = None
    forwards: list[list[int]] = field(default_factory=list)  # rows per segment of every forward
    timers: dict[str, float] = field(default_factory=lambda: {"attention": 0.0, "lm_head": 0.0})
    routing_counts: np.ndarray | None = None
    draft_counts: np.ndarray | None = None
    resident_bytes: int = 12_345_678
    has_state: bool = False

    _last_ids: list[int] = field(default_factory=list)

    @property
    def mixture_layers(self) -> list[int]:
        return [] if self.routing_counts is None else list(range(len(self.routing_counts)))

    def uncount(self, rows: list[int]) -> None:
        if self.routing_counts is not None:
            num_layers, cols = self.routing_counts.shape
            for row in rows:
                self.routing_counts[np.arange(num_layers), self._last_ids[row] % cols] -= 1

    def make_cache(self) -> FakeKvCache:
        return FakeKvCache(has_state=self.has_state)

    def forward(self, ids: np.ndarray, batch: FakeBatch, logit_rows: list[int]) -> np.ndarray:
        assert ids.dtype == np.int32
        assert ids.shape == (batch.rows,)
        self.forwards.append([rows for _, _, rows in batch.segments])
        logits = np.empty((len(logit_rows), self.config.vocab_size), np.float32)
        row = 0
        for cache, start, rows in batch.segments:
            del cache.ids[start:]
            for token_id in ids[row : row + rows].tolist():
                cache.ids.append(token_id)
                if row in logit_rows:
                    logits[logit_rows.index(row)] = self.logits_after(cache.ids)
                row += 1
        if self.fault is not None:  # after the rows are written: the worst moment
            self.fault(ids.tolist())
        self._count(ids)
        self._last_ids = ids.tolist()
        return logits

    def logits_after(self, history: list[int]) -> np.ndarray:
        """Return the row that any correct caller must see after exactly this history."""
        key = zlib.crc32(np.asarray(history, np.int32).tobytes())
        row = np.random.default_rng(key).standard_normal(self.config.vocab_size)
        if self.next_token is not None:
            row[self.next_token(history)] = 50.0
        return row.astype(np.float32)

    def _count(self, ids: np.ndarray) -> None:
        self.timers["attention"] += 0.25
        self.timers["lm_head"] += 0.125
        if self.routing_counts is not None:
            rows, cols = self.routing_counts.shape
            for token_id in ids.tolist():
                self.routing_counts[np.arange(rows), token_id % cols] += 1
