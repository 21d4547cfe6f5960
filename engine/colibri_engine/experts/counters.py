"""What is counted of a model's routed experts, wherever they are."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class ExpertCounters:
    """Sums since the start; never reset. Experts count once per layer and step.

    Args:
        hits: Asked for and in memory.
        prefetched: Of them, there because they were read ahead.
        misses: Asked for and not in memory.
        late: Of them, already being read.
        ahead: Read, or begun to be, without having been asked for.
        cancelled: Of them, taken back before they began.
        bytes_read: Bytes that arrived.
        wait_s: Seconds in which nothing could be computed for want of an expert.
        service_s: Seconds of reads, each from its first byte to its last; they overlap.
        matmul_s: Seconds of computing experts.
    """

    hits: int = 0
    prefetched: int = 0
    misses: int = 0
    late: int = 0
    ahead: int = 0
    cancelled: int = 0
    bytes_read: int = 0
    wait_s: float = 0.0
    service_s: float = 0.0
    matmul_s: float = 0.0
