"""Running the engine's planning job: it reads headers and measures what is not known yet."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from colibri_cli import paths
from colibri_cli.console import spinner
from colibri_cli.model_store.engine_job import run_job

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from colibri_cli.planning.what_if import WhatIf
    from colibri_protocol.settings import ResolvedSettings


def rates_file() -> Path:
    """Return where the measurements of this machine are kept."""
    return paths.cache_dir() / "rates.json"


def plan_model(
    path: Path, settings: ResolvedSettings, cases: Sequence[WhatIf], *, renew: bool
) -> dict[str, Any]:
    """Return the job's answer: model, machine, one plan for what is and one for each case.

    Args:
        path: Directory or file.
        settings: Those its engine would be started with.
        cases: What else is asked.
        renew: Measure again what is known.

    Raises:
        JobFailed: the model cannot be planned; the code is the engine's own.
    """
    arguments = ["--rates", str(rates_file())]
    arguments += ["--measure"] if renew else []
    for case in cases:
        arguments += ["--case", json.dumps(case.body())]
    environment = {**settings.engine_environment(), "SNAP": str(path)}
    found: list[dict[str, Any]] = []

    def take(word: str, text: str) -> None:
        if word == "PLAN":
            found.append(json.loads(text))

    with spinner("reading headers and measuring this machine"):
        run_job("plan", arguments, take, environment=environment)
    return found[0]
