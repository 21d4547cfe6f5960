"""`coli plan --json`: version 2 of the document that planners of this kind of engine write.

The keys at the top are those readers of version 2 know and describe the settings as they are now.
`machine` and `plans` say more, in our own words: rates, times term by term, and one plan for each
`--what-if`.
"""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.model_store.drive_probe import drive_probe
from colibri_cli.terminal.sizes import size
from colibri_cli.tuning.profile import fingerprint, read_profile
from colibri_protocol.settings import SETTINGS

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_protocol.settings import ResolvedSettings

VERSION: Final = 2

_LIMITS: Final = {
    "disk": "waiting for experts that are read from disk",
    "memory": "reading weights from memory",
    "compute": "attention and calls, not the weights",
    "refused": "memory: the model does not fit",
}


def document(report: dict[str, Any], path: Path, settings: ResolvedSettings) -> dict[str, Any]:
    """Return the whole document.

    Args:
        report: What the engine's planning job says, the model's name and labels added.
        path: The model's directory or file.
        settings: Those its engine would be started with.
    """
    now, machine = report["plans"][0], report["machine"]
    folder = path if path.is_dir() else path.parent
    probe = drive_probe(folder)
    tiers = {name: dict(tier) for name, tier in now["tiers"].items()}
    tiers["disk"]["available_bytes"] = shutil.disk_usage(folder).free
    kind = now["bottleneck"] if now["runs"] else "refused"
    return {
        # Ours is in every document of this program; the other is what version 1 was told by.
        "schema_version": VERSION,
        "version": VERSION,
        "policy": policy(settings),
        "model": report["model"],
        "cpu": {
            "physical_cores": machine["cores"],
            "sockets": machine["sockets"],
            "thread_policy": f"{machine['threads']} threads, {_threads_source(settings)}",
        },
        "memory": {
            # No memory is shared with a GPU: the processor computes everything.
            "unified": False,
            "available_bytes": machine["memory"]["available_bytes"],
        },
        "tiers": tiers,
        "expected_bottleneck": _LIMITS[kind],
        "bottleneck_class": "memory" if kind == "refused" else kind,
        "projected_hit_rate": now["hit_rate"] if now["runs"] else None,
        "tune": tuning(path, settings),
        "decisions": decisions(report, settings),
        "warnings": [*now["warnings"], *([] if now["runs"] else [now["reason"]])],
        "ssd_probe_gbs": probe.gb_per_s,
        "ssd_probe_state": probe.state,
        "machine": machine,
        "plans": report["plans"],
    }


def policy(settings: ResolvedSettings) -> dict[str, Any]:
    """Return whether the settings keep what the model would say, and what to call that."""
    keeps_numbers = settings.text("numerics") != "fast" and settings.text("kv_dtype") != "bf16"
    keeps_router = not settings.integer("experts_per_token")
    keeps_all = keeps_numbers and keeps_router
    moves = bool(settings.integer("repin"))
    return {
        "name": ("balanced" if moves else "quality") if keeps_all else "experimental-fast",
        "preserve_quantization": keeps_numbers,
        "preserve_router": keeps_router,
        "quality_preserving": keeps_all,
    }


def tuning(path: Path, settings: ResolvedSettings) -> dict[str, dict[str, str]]:
    """Return what `coli tune` found to be faster here: variable to value and reason."""
    how = "applied" if settings.switch("auto_tier") else "applied with --auto-tier"
    return {
        SETTINGS[name].env[0]: {
            "value": value,
            "reason": f"measured by coli tune on this machine; {how}",
        }
        for name, value in read_profile(fingerprint(path)).items()
        if not settings.is_given(name)
    }


def decisions(report: dict[str, Any], settings: ResolvedSettings) -> list[str]:
    """Return why things go where they go, a sentence each."""
    now, machine = report["plans"][0], report["machine"]
    ram, disk = now["tiers"]["ram"], now["tiers"]["disk"]
    found = [
        f"the memory budget is {size(ram['budget_bytes'])}: {ram['budget_source']}",
        f"{machine['threads']} threads compute, {_threads_source(settings)}",
        "nothing is placed in VRAM: experts are computed by the processor",
    ]
    if not now["runs"]:
        return [*found, f"nothing is loaded: {now['reason']}"]
    if not report["model"]["expert_count"]:
        return [*found, "all weights are in memory: the model has no experts to read as needed"]
    if now["mode"] == "resident":
        return [*found, "all experts are in memory: with everything else they fit the budget"]
    low, high = ram["cache_slots_per_layer"], ram["max_slots_per_layer"]
    slots = str(low) if low == high else f"{low} to {high}"
    cap = settings.integer("cap")
    why = f"--cap allows {cap}" if cap else "that is what fits beside everything else"
    return [
        *found,
        f"{slots} experts of each layer stay in memory: {why}",
        f"{size(disk['cold_expert_bytes'])} of experts stay on disk and are read as needed",
        f"hits are expected from {now['hit_source']}",
    ]


def _threads_source(settings: ResolvedSettings) -> str:
    if settings.is_given("num_threads"):
        return f"as {settings['num_threads'].origin.name} says"
    return "one for each physical core this process may use"
