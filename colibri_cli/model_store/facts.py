"""What there is to say of a model directory without loading it, for `coli info` and `coli show`."""

from __future__ import annotations

import shutil
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_cli.model_store.inspection import Inspection
    from colibri_protocol.settings import ResolvedSettings

_SCHEMA_VERSION: Final = 1
_SIDECARS: Final = (".coli_usage", ".coli_kv*", ".coli_ssd")


def facts_of(
    path: Path, name: str, found: Inspection, settings: ResolvedSettings
) -> dict[str, Any]:
    """Return the JSON document about a model, its machine and its engine.

    Args:
        path: Directory or file.
        name: What it is called.
        found: What the engine saw.
        settings: Those the engine would be started with.
    """
    folder = path if path.is_dir() else path.parent
    problems = {stage: error.message for stage, error in found.errors.items()}
    if found.crash is not None:
        problems["engine"] = found.crash
    return {
        "schema_version": _SCHEMA_VERSION,
        "model": {"name": name, "path": str(path), **found.stages.get("config", {})},
        "files": found.get("files", "files") or [],
        "bytes": found.get("files", "bytes"),
        "formats": found.get("tensors", "formats") or {},
        "machine": found.stages.get("machine"),
        "disk_free_bytes": shutil.disk_usage(folder).free,
        "sidecars": sidecars(folder),
        "settings": {
            key: value.value
            for key, value in settings.items()
            if settings.is_given(key) and key not in {"model", "api_key"}
        },
        "problems": problems,
    }


def sidecars(folder: Path) -> list[dict[str, Any]]:
    """Return what runs left beside a model: history of experts, conversations, the disk's speed."""
    now = time.time()
    found = []
    for pattern in _SIDECARS:
        for file in sorted(folder.glob(pattern)):
            status = file.stat()
            age = max(0, round(now - status.st_mtime))
            found.append({"name": file.name, "bytes": status.st_size, "age_s": age})
    return found


def fact_rows(body: dict[str, Any]) -> dict[str, str]:
    """Return the document as names and texts, in the order they are shown."""
    from colibri_cli.terminal.durations import duration
    from colibri_cli.terminal.sizes import size

    model, machine = body["model"], body["machine"] or {}
    rows = {"model": f"{model['name']}, {model['path']}"}
    if "model_type" in model:
        rows["family"] = str(model["model_type"])
        rows["size"] = f"{model['num_layers']} layers, hidden {model['hidden_size']}"
        experts, chosen = model["num_experts"], model["num_experts_per_token"]
        rows["experts"] = f"{experts} per layer, {chosen} per token" if experts else "none (dense)"
        rows["context"] = f"{model['max_positions'] or 'unknown'} tokens in training"
        rows["chat format"] = "yes" if model["has_chat_template"] else "none in the files"
    for stage, problem in body["problems"].items():
        rows[f"{stage}!"] = problem
    if body["bytes"] is not None:
        num_files = len(body["files"])
        rows["files"] = f"{num_files} file{'s' * (num_files != 1)}, {size(body['bytes'])}"
    if body["formats"]:
        rows["formats"] = ", ".join(f"{count} {name}" for name, count in body["formats"].items())
    if machine:
        available, total = size(machine["available_bytes"]), size(machine["total_bytes"])
        rows["memory"] = f"{available} of {total} available"
        rows["engine"] = f"ready, kernels {machine['isa']}, {machine['num_cores']} cores"
        rows["processor"] = machine["cpu"]
    rows["disk"] = f"{size(body['disk_free_bytes'])} free"
    for sidecar in body["sidecars"]:
        age = duration(sidecar["age_s"])
        rows[sidecar["name"]] = f"{size(sidecar['bytes'])}, {age} old"
    for name, value in body["settings"].items():
        rows[name] = f"{value} (set)"
    return rows
