"""What the diagnostic routes show: state, scheduler, tiers, experts, profile, as JSON objects.

Whoever shows no key where one is configured sees the state word and empty shapes.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

from colibri_cli import __version__
from colibri_cli.supervisor.telemetry import UpstreamFigures

if TYPE_CHECKING:
    from colibri_cli.backends.base import Health, ModelCard
    from colibri_cli.gateway.services import ServeSettings, Services
    from colibri_cli.supervisor.admission import Ticket
    from colibri_cli.supervisor.telemetry import Telemetry
    from colibri_protocol.messages import TurnProfile

STATUS_OK: Final = "ok"
# "stopped": the address is taken and the engine is about to be started
_STATUS: Final = {"ready": STATUS_OK, "starting": "loading", "stopped": "loading"}
ATLAS: Final = "experts.json"
NO_PROFILE: Final[dict[str, Any]] = {"seq": 0, "turns": []}
NO_EXPERTS: Final[dict[str, Any]] = {"rows": 0, "cols": 0, "map": "", "hits": "", "seq": 0}


def status_of(health: Health) -> str:
    """Return the state word for outside: ok, loading, or error."""
    return _STATUS.get(health.state, "error")


async def health_view(services: Services, *, is_authorized: bool) -> dict[str, Any]:
    """Return the state of server and engine."""
    health = await services.backend.health()
    view: dict[str, Any] = {"status": status_of(health)}
    if not is_authorized:
        return view
    telemetry = services.backend.telemetry()
    settings = services.settings
    view |= {
        "scheduler": scheduler_view(services),
        "kv_slots": settings.kv_slots,
        "slots": slots_view(services),
        "model": settings.model_id,
        "version": __version__,
        "uptime_s": max(0, int(time.time()) - settings.created) if settings.created else 0,
        "engine": {
            "state": health.state,
            "restarts": health.num_crashes,
            "last_end": health.last_crash,
            "rss_gb": telemetry.rss_gb,
        },
        "atlas": await asyncio.to_thread(has_atlas, settings),
    }
    card = None
    if health.state == "ready":
        card = (await services.backend.models())[0]
        view |= {"family": card.family, "context_length": card.context_length}
    if (details := upstream_view(telemetry, card)) is not None:
        view["upstream"] = details
    if telemetry.tiers is not None:
        view["tiers"] = tiers_view(telemetry)
    if (hardware := telemetry.hardware) is not None:
        view["hwinfo"] = {
            "cores": hardware.num_cores,
            "ram_total_gb": hardware.ram_total_gb,
            "ram_avail_gb": hardware.ram_available_gb,
            "gpus": hardware.num_gpus,
            "vram_total_gb": hardware.vram_total_gb,
            "cpu": hardware.cpu,
            "gpu": hardware.gpu,
        }
    return view


def has_atlas(settings: ServeSettings) -> bool:
    """Return whether `/experts.json` has something: a look at the disk."""
    page = settings.dashboard
    places = (settings.atlas, None if page is None else page / ATLAS)
    return any(place is not None and place.is_file() for place in places)


def upstream_view(telemetry: Telemetry, card: ModelCard | None) -> dict[str, Any] | None:
    """Return what is known of the server behind; None: the engine is ours."""
    if card is None or "server" not in card.details:
        return None
    figures = telemetry.upstream or UpstreamFigures()
    return {"server": card.details["server"], "url": card.details["url"], **asdict(figures)}


def scheduler_view(services: Services) -> dict[str, Any]:
    """Return how many run, wait, and were sent away."""
    scheduler = services.scheduler
    return {
        "active": scheduler.active,
        "queued": scheduler.queued,
        "capacity": scheduler.capacity,
        "max_queue": scheduler.max_queue,
        "queue_timeout_seconds": scheduler.queue_timeout_s,
        **asdict(scheduler.counters),
    }


def slots_view(services: Services) -> list[dict[str, Any]]:
    """Return what runs in each slot; `slot` is null while the engine has not named it."""
    now = asyncio.get_running_loop().time()
    return [
        {
            "slot": ticket.slot,
            "request": ticket.label,
            "state": "decode" if ticket.pieces else "prefill",
            "prompt_tokens": ticket.prompt_tokens,
            "prefilled_tokens": ticket.prefilled_tokens,
            "generated": ticket.pieces,
            "tokens_per_second": _rate(ticket, now),
            "wait_s": round(ticket.wait_s, 3),
            "age_s": round(now - ticket.began, 3),
        }
        for ticket in services.scheduler.running
    ]


def _rate(ticket: Ticket, now: float) -> float:
    elapsed = now - ticket.decode_began
    return round((ticket.pieces - 1) / elapsed, 2) if ticket.pieces > 1 and elapsed > 0 else 0.0


def tiers_view(telemetry: Telemetry) -> dict[str, Any]:
    """Return how many experts sit where; empty before it is known."""
    return asdict(telemetry.tiers) if telemetry.tiers is not None else {}


def profile_view(telemetry: Telemetry) -> dict[str, Any]:
    """Return where the time of the last turns went, oldest first."""
    turns = [turn_view(profile) for profile in telemetry.profiles]
    return {"seq": telemetry.profile_seq, "turns": turns}


def turn_view(profile: TurnProfile) -> dict[str, Any]:
    """Return where the time of one turn went."""
    view = asdict(profile)
    view["forwards"] = view.pop("num_forwards")
    return view


def experts_view(telemetry: Telemetry) -> dict[str, Any]:
    """Return where each expert sits, how hot it is, and which ones were just used."""
    placed = telemetry.expert_map
    view = dict(NO_EXPERTS)
    if placed is not None:
        hits = telemetry.hits
        view = {
            "rows": placed.rows,
            "cols": placed.cols,
            "map": placed.cells.hex(),
            "hits": hits.bits.hex() if hits is not None else "",
            "seq": telemetry.hits_seq,
        }
        if len(telemetry.map_layers) == placed.rows:
            view["layers"] = list(telemetry.map_layers)
            if telemetry.has_draft_row:
                view["mtp_row"] = placed.rows - 1
    if telemetry.gpus is not None:
        view["gpus"] = [
            {"used_gb": used, "total_gb": total, "experts": experts}
            for used, total, experts in telemetry.gpus.devices
        ]
    if telemetry.entropy is not None:
        view["entropy"] = list(telemetry.entropy.bits)
    if telemetry.moves:
        view["repin"] = [asdict(move) for move in telemetry.moves]
    return view


def progress_view(services: Services) -> dict[str, Any]:
    """Return how far the running requests are."""
    return {"slots": slots_view(services), "queued": services.scheduler.queued}
