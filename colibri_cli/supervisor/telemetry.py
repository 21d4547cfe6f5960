"""The latest figures an engine sent on its own: machine, tiers, expert map, hits, profile.

A pure store that the client feeds and views read; counters tell when something is new. It outlives
the engine that fills it: after a restart the counters go on, and what was true of the old process
only is forgotten.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from colibri_protocol.messages import (
    EngineMessage,
    EngineStat,
    ExpertHits,
    ExpertMap,
    ExpertMoved,
    Finished,
    GpuUsage,
    HardwareInfo,
    ModelInfo,
    RoutingEntropy,
    TierCounts,
    TurnProfile,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

PROFILE_WINDOW: Final = 120
MOVES_WINDOW: Final = 256


@dataclass(frozen=True, slots=True)
class UpstreamFigures:
    """The latest look at an upstream server; None: it does not say.

    Args:
        running: Requests that run there, ours or not.
        waiting: Requests that wait there.
        kv_usage: Share of its KV cache in use, 0..1.
        decode_rate: Tokens it generates per second, all requests together.
        prefill_rate: Prompt tokens it takes per second.
        hit_ratio: Share of prompt tokens found in its prefix cache since its start.
    """

    running: int | None = None
    waiting: int | None = None
    kv_usage: float | None = None
    decode_rate: float | None = None
    prefill_rate: float | None = None
    hit_ratio: float | None = None


@dataclass(slots=True)
class Telemetry:
    """Latest message of each kind; the profile keeps a window of turns, and so do the moves."""

    hardware: HardwareInfo | None = None
    tiers: TierCounts | None = None
    expert_map: ExpertMap | None = None
    map_layers: tuple[int, ...] = ()
    """Numbers of the layers that the rows of the map are about; empty: the engine did not say."""
    has_draft_row: bool = False
    """Whether the last of them is a draft layer."""
    hits: ExpertHits | None = None
    hits_seq: int = 0
    profiles: deque[TurnProfile] = field(default_factory=lambda: deque(maxlen=PROFILE_WINDOW))
    profile_seq: int = 0
    gpus: GpuUsage | None = None
    entropy: RoutingEntropy | None = None
    moves: deque[ExpertMoved] = field(default_factory=lambda: deque(maxlen=MOVES_WINDOW))
    rss_gb: float = 0.0
    hit_percent: float = 0.0
    upstream: UpstreamFigures | None = None

    @property
    def profile(self) -> TurnProfile | None:
        """Profile of the last turn."""
        return self.profiles[-1] if self.profiles else None

    def forget_engine(self) -> None:
        """Drop what was true of a process that has ended."""
        self.hardware = self.tiers = self.expert_map = self.hits = None
        self.gpus = self.entropy = None
        self.map_layers, self.has_draft_row = (), False
        self.moves.clear()
        self.rss_gb = self.hit_percent = 0.0

    def _take_layers(self, model: Mapping[str, object]) -> None:
        found = model.get("mixture_layers")
        draft = model.get("draft_layer")
        layers = list(found) if isinstance(found, list) else []
        self.has_draft_row = bool(layers) and draft is not None
        if self.has_draft_row:
            layers.append(draft)
        is_known = all(type(layer) is int and layer >= 0 for layer in layers)
        self.map_layers = tuple(layers) if is_known else ()

    def feed(self, message: EngineMessage) -> bool:
        """Keep a telemetry message; returns False for every other kind."""
        match message:
            case HardwareInfo():
                self.hardware = message
            case TierCounts():
                self.tiers = message
            case ExpertMap():
                self.expert_map = message
            case ExpertHits():
                self.hits = message
                self.hits_seq += 1
            case TurnProfile():
                self.profiles.append(message)
                self.profile_seq += 1
            case GpuUsage():
                self.gpus = message
            case RoutingEntropy():
                self.entropy = message
            case ExpertMoved():
                self.moves.append(message)
            case ModelInfo():
                self._take_layers(message.data)
                return False
            case EngineStat() | Finished():
                self.rss_gb = message.rss_gb
                self.hit_percent = message.hit_percent
                return False
            case _:
                return False
        return True
