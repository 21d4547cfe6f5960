"""Kept results: one file per model, machine and version, in the user's configuration directory.

A profile names only settings that cannot change an answer. One with another key, or made for other
files, another processor or another version, is not applied; what a user set always counts more.
"""

from __future__ import annotations

import hashlib
import json
import os
import platform
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from colibri_cli import __version__, paths
from colibri_cli.errors import StoreError
from colibri_cli.whole_files import write_whole

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_protocol.settings import ResolvedSettings

SCHEMA_VERSION: Final = 1
KEYS: Final = frozenset({"num_threads", "read_mode", "direct"})
_DIGITS: Final = 20
_MAX_BYTES: Final = 1024 * 1024
_WEIGHTS: Final = (".gguf", ".safetensors")


def fingerprint(model: Path, cpu_info: Path = Path("/proc/cpuinfo")) -> str:
    """Return what a profile is valid for: processor, version, weight files.

    Raises:
        StoreError: the files cannot be looked at.
    """
    try:
        files = sorted(model.iterdir()) if model.is_dir() else [model]
        rows = [
            (file.name, file.stat().st_size, file.stat().st_mtime_ns)
            for file in files
            if file.suffix in _WEIGHTS
        ]
    except OSError as error:  # a link to nowhere, or a directory of somebody else
        raise StoreError(f"cannot read {error.filename}: {error.strerror}") from error
    facts = [__version__, platform.machine(), _cpu(cpu_info), os.cpu_count(), rows]
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()[:_DIGITS]


def profile_path(mark: str) -> Path:
    """Return the file of a profile."""
    return paths.config_dir() / "tuning" / f"{mark}.json"


def write_profile(mark: str, body: Mapping[str, Any]) -> Path:
    """Keep a profile and return its file.

    Raises:
        StoreError: it cannot be written.
    """
    path = profile_path(mark)
    text = json.dumps({"schema_version": SCHEMA_VERSION, "fingerprint": mark, **body}, indent=1)
    try:
        write_whole(path, text + "\n")
    except OSError as error:
        raise StoreError(f"cannot write {path}: {error.strerror}") from error
    return path


def read_profile(mark: str) -> dict[str, str]:
    """Return the settings of an accepted profile; empty if there is none that may be applied."""
    try:
        with profile_path(mark).open("rb") as file:
            body = json.loads(file.read(_MAX_BYTES))
        if (body["schema_version"], body["fingerprint"]) != (SCHEMA_VERSION, mark):
            return {}
        found = body["winner"]["settings"] if body["accepted"] else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}
    is_usable = (
        isinstance(found, dict)
        and found.keys() <= KEYS
        and all(isinstance(value, str) for value in found.values())
    )
    return found if is_usable else {}


def tuned_settings(settings: ResolvedSettings, model: Path) -> dict[str, str]:
    """Return what a profile adds to the settings of one run: nothing that somebody set."""
    if settings.switch("auto_tier") is not True:
        return {}
    found = read_profile(fingerprint(model))
    return {name: value for name, value in found.items() if not settings.is_given(name)}


def _cpu(cpu_info: Path) -> str:
    try:
        lines = cpu_info.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor()
    return next((line for line in lines if line.startswith("model name")), platform.processor())
