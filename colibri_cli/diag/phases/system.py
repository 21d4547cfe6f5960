"""Phase `system`: the machine, the model and its engine, as the engine tells them."""

from __future__ import annotations

import platform
import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from colibri_cli import __version__
from colibri_cli.diag.phases.base import PhaseResult

if TYPE_CHECKING:
    from colibri_cli.diag.phases.base import Bench

_ENGINE_KEYS = ("isa", "num_threads", "numerics", "num_slots")
# What a server does not tell over HTTP.
_ABSENT = ("load_s", "machine", "resident_bytes", "profile", "tiers", "hit_percent", "rss_gb")
_MODEL_KEYS = ("num_layers", "num_experts", "num_experts_per_token", "vocab_size", "context_length")


async def run(bench: Bench) -> PhaseResult:
    """Collect facts; nothing is asked."""
    details, card = bench.card.details, bench.card
    hardware = bench.backend.telemetry().hardware
    resident = card.resident_bytes
    result = PhaseResult(
        {
            "version": __version__,
            "python": platform.python_version(),
            "platform": sys.platform,
            "machine": None if hardware is None else asdict(hardware),
            "engine": {key: details.get(key) for key in _ENGINE_KEYS}
            | {"capabilities": sorted(card.capabilities)},
            "model": {key: details.get(key) for key in _MODEL_KEYS}
            | {"id": card.id, "family": card.family, "file_bytes": card.file_bytes},
            "resident_bytes": resident,
            "load_s": None if bench.load_s is None else round(bench.load_s, 3),
            "server": bench.server,
            "absent": list(_ABSENT) if bench.server is not None else [],
        }
    )
    if bench.load_s is not None:
        result.metrics["system.load_s"] = round(bench.load_s, 3)
    if resident is not None:
        result.metrics["system.resident_gb"] = round(resident / 1e9, 4)
    return result
