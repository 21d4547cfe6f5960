"""What the engine tells about itself: the machine, the experts, where the time went.

All figures are measured or counted, none is estimated. Timers of the model run for the process;
a reply's share is the difference between its end and its start, so with several replies at once
the spans describe the engine during that time and overlap. Engine thread only.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from colibri_engine import machine
from colibri_protocol.messages import (
    EngineStat,
    ExpertHits,
    ExpertMap,
    HardwareInfo,
    TierCounts,
    TurnProfile,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy.typing as npt

    from colibri_engine.experts.tiers import ExpertTiers
    from colibri_engine.models.base import Model
    from colibri_engine.sequence import Sequence
    from colibri_protocol.messages import EngineMessage

GB: Final = 1e9
_RAM_TIER: Final = 1
_MAX_HEAT: Final = 63


@dataclass(slots=True)
class Counters:
    """Sums since the start; never reset."""

    num_accepted: int = 0
    num_refused: int = 0
    num_finished: int = 0
    num_cancelled: int = 0
    num_failed: int = 0
    prompt_tokens: int = 0
    reused_tokens: int = 0
    completion_tokens: int = 0
    num_forwards: int = 0
    num_rows: int = 0
    model_s: float = 0.0


class Telemetry:
    """Observes one model.

    Args:
        model: The loaded model.
        num_cores: Cores the engine may use.
        tiers: Where experts are that need not all be in memory; None: all are.
    """

    def __init__(self, model: Model, num_cores: int, tiers: ExpertTiers | None = None) -> None:
        self.counters = Counters()
        self._model = model
        self._tiers = tiers
        self._num_cores = num_cores
        self._cpu = machine.cpu_name()
        counts = self._counts()
        self._told_counts = None if counts is None else counts.copy()

    def _counts(self) -> npt.NDArray[np.int64] | None:
        """Return (rows, experts) selections; a draft layer is the row behind the model's own."""
        counts = self._model.routing_counts
        draft = getattr(self._model, "draft_counts", None)
        return counts if counts is None or draft is None else np.vstack([counts, draft])

    def timers(self) -> dict[str, float]:
        """Return the model's seconds so far, by part."""
        return dict(self._model.timers)

    def stat(self) -> EngineStat:
        """Return the first figures after READY."""
        return EngineStat(machine.resident_bytes() / GB)

    def baseline(self) -> dict[str, float]:
        """Return the sums of which a reply's share is the difference."""
        hits, misses = self._hits_and_misses()
        return {**self.timers(), "hits": hits, "misses": misses}

    def hit_percent(self, baseline: Mapping[str, float]) -> float:
        """Return the share of the experts asked for since then that were in memory.

        Experts count once per layer and step. Where all are in memory that is every one.
        """
        hits, misses = self._hits_and_misses()
        asked = hits + misses - baseline.get("hits", 0) - baseline.get("misses", 0)
        return 100.0 * (hits - baseline.get("hits", 0)) / asked if asked else 0.0

    def _hits_and_misses(self) -> tuple[int, int]:
        if self._tiers is not None:
            return self._tiers.hits_and_misses()
        counts = self._model.routing_counts
        return (0 if counts is None else int(counts.sum())), 0

    def hardware(self) -> HardwareInfo:
        """Return the machine, with the memory that is free now."""
        memory = machine.memory()
        return HardwareInfo(
            self._num_cores, memory.total / GB, memory.available / GB, 0, 0.0, self._cpu, ""
        )

    def tiers(self) -> TierCounts:
        """Return where the experts are."""
        counts = self._counts()
        num_experts = 0 if counts is None else counts.size
        held = getattr(self._model, "expert_bytes", 0) if num_experts else 0
        if self._tiers is None:
            return TierCounts(0, num_experts, 0, 0.0, held / GB)
        sizes = self._tiers.sizes(0 if counts is None else len(counts), num_experts, held)
        return TierCounts(0, sizes.num_ram, sizes.num_disk, 0.0, sizes.ram_bytes / GB)

    def expert_map(self) -> ExpertMap:
        """Return tier and heat of every expert; heat is the bit length of its selections."""
        counts = self._counts()
        if counts is None:
            return ExpertMap(0, 0, b"")
        heat = np.minimum(np.frexp(counts.astype(np.float64))[1], _MAX_HEAT)  # exponent = bits
        held = np.array(True) if self._tiers is None else self._tiers.is_held(counts.shape)
        cells = (heat | (held * _RAM_TIER << 6)).astype(np.uint8)
        return ExpertMap(counts.shape[0], counts.shape[1], cells.tobytes())

    def expert_hits(self) -> ExpertHits:
        """Return which experts were chosen since the last call, and start anew."""
        counts = self._counts()
        if counts is None or self._told_counts is None:
            return ExpertHits(0, 0, b"")
        chosen = (counts > self._told_counts).ravel()
        self._told_counts = counts.copy()
        bits = np.packbits(chosen, bitorder="little")
        return ExpertHits(counts.shape[0], counts.shape[1], bits.tobytes())

    def greeting(self) -> list[EngineMessage]:
        """Return what follows STAT at the start."""
        return [self.hardware(), self.tiers(), self.expert_map()]

    def snapshot(self) -> list[EngineMessage]:
        """Return what goes before every DONE, but its own profile."""
        return [self.hardware(), self.tiers(), self.expert_map(), self.expert_hits()]

    def profile(self, sequence: Sequence, now: float) -> TurnProfile:
        """Return where the time of one reply went."""
        spans = _difference(self._model.timers, sequence.baseline)
        return TurnProfile(
            wall_s=now - sequence.accepted_at,
            prompt_tokens=sequence.num_prompt,
            completion_tokens=sequence.num_generated,
            expert_disk_s=spans.get("expert_disk", 0.0),
            expert_wait_s=spans.get("expert_wait", 0.0),
            expert_matmul_s=spans.get("expert_matmul", 0.0),
            attention_s=spans.get("attention", 0.0),
            lm_head_s=spans.get("lm_head", 0.0),
            num_forwards=sequence.num_forwards,
        )

    def report(self) -> dict[str, object]:
        """Return the raw counters, for STATS."""
        counts = self._model.routing_counts
        return {
            **asdict(self.counters),
            "timers_s": self.timers(),
            "rss_bytes": machine.resident_bytes(),
            "expert_selections": 0 if counts is None else int(counts.sum()),
            "routing_counts": [] if counts is None else counts.tolist(),
            "experts": None if self._tiers is None else self._tiers.report(),
        }


def _difference(now: Mapping[str, float], before: Mapping[str, float]) -> dict[str, float]:
    return {name: value - before.get(name, 0.0) for name, value in now.items()}
