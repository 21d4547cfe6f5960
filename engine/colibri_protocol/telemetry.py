"""Messages about the engine as a whole: facts and measurements that belong to no reply.

A gateway may miss, ignore or merge them; one with wrong fields is ignored. Sizes are in 10^9 bytes.
Our engine sends the first five; the others are documented for engines that send them.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class HardwareInfo:
    """The machine (HWINFO)."""

    num_cores: int
    ram_total_gb: float
    ram_available_gb: float
    num_gpus: int
    vram_total_gb: float
    cpu: str
    gpu: str


@dataclass(frozen=True, slots=True)
class TierCounts:
    """How many experts sit where (TIERS), and the bytes of the upper two tiers."""

    vram: int
    ram: int
    disk: int
    vram_gb: float
    ram_gb: float


@dataclass(frozen=True, slots=True)
class ExpertMap:
    """One byte per expert, row-major: tier << 6 | heat (EMAP); tier 0 disk, 1 RAM, 2 VRAM."""

    rows: int
    cols: int
    cells: bytes


@dataclass(frozen=True, slots=True)
class ExpertHits:
    """One bit per expert routed to since the last such line (HITS): byte i >> 3, bit i & 7."""

    rows: int
    cols: int
    bits: bytes


@dataclass(frozen=True, slots=True)
class TurnProfile:
    """Where the time of one reply went (PROF), in seconds."""

    wall_s: float
    prompt_tokens: int
    completion_tokens: int
    expert_disk_s: float
    expert_wait_s: float
    expert_matmul_s: float
    attention_s: float
    lm_head_s: float
    num_forwards: int


@dataclass(frozen=True, slots=True)
class RequestTimings:
    """Where the time of one request went so far (PERF), in seconds."""

    id: int
    wall_s: float
    expert_disk_s: float
    expert_wait_s: float
    expert_matmul_s: float
    attention_s: float
    kv_expansion_s: float
    lm_head_s: float


@dataclass(frozen=True, slots=True)
class RoutingEntropy:
    """Bits of the router's choice, one number per sparse layer (ENTROPY)."""

    bits: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GpuUsage:
    """Per device: bytes used, bytes in all, experts held (GPUS)."""

    devices: tuple[tuple[float, float, int], ...]


@dataclass(frozen=True, slots=True)
class TokenCandidates:
    """The likeliest tokens at one position, (logprob, bytes) each (TOPK)."""

    id: int
    candidates: tuple[tuple[float, bytes], ...]


@dataclass(frozen=True, slots=True)
class ExpertMoved:
    """An expert changed its tier (REPIN)."""

    layer: int
    expert: int
    old_tier: int
    gpu: int
