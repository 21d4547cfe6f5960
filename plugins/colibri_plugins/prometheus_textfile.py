"""Figures of `coli serve` in a file that Prometheus' node exporter collects.

For machines where nobody may open a port. Name the file in the configuration:

    [plugins.prometheus-textfile]
    file = "coli.prom"

Source: the exposition format of Prometheus, version 0.0.4.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from colibri_cli.plugin_api import (
    CheckContext,
    CheckResult,
    CheckStatus,
    ColibriError,
    RegisterCheck,
    RegisterSetting,
    RegisterSink,
    hookimpl,
)

_COUNTS = ("completed", "failed", "aborted", "rejected", "timed_out", "cancelled")
_values: dict[str, str | float | bool] = {"file": "", "interval_s": 5.0}


@hookimpl
def register_settings(register: RegisterSetting) -> None:
    """Declare the file and the interval."""
    register("file", "", "File that is written; its name should end with .prom.")
    register("interval_s", 5.0, "Seconds between two writes.")


@hookimpl
def configure(values: Mapping[str, str | float | bool]) -> None:
    """Keep the settings."""
    _values.update(values)


@hookimpl
def register_telemetry_sinks(register: RegisterSink) -> None:
    """Write the file while a server runs."""
    if _values["file"]:
        path = Path(str(_values["file"])).expanduser()
        register("textfile", partial(write, path), interval_s=float(_values["interval_s"]))


@hookimpl
def register_doctor_checks(register: RegisterCheck) -> None:
    """Tell whether the file can be written."""
    register("plugins.prometheus_textfile", _check)


def write(path: Path, figures: Mapping[str, Any]) -> None:
    """Replace the file at once, so that a reader never sees half of it."""
    temporary = path.with_name(f".{path.name}.new")
    try:
        temporary.write_text("\n".join([*lines(figures), ""]), encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ColibriError(f"cannot write {path}: {error.strerror}") from error


def lines(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yield the lines of the file."""
    yield from _family("up", "gauge", {"": float(figures.get("status") == "ok")})
    yield from _family("uptime_seconds", "counter", {"": figures.get("uptime_s", 0)})
    scheduler = figures.get("scheduler") or {}
    if scheduler:
        yield from _family("slots_active", "gauge", {"": scheduler["active"]})
        yield from _family("queue_depth", "gauge", {"": scheduler["queued"]})
        counts = {f'{{outcome="{name}"}}': scheduler.get(name, 0) for name in _COUNTS}
        yield from _family("requests_total", "counter", counts)
    tiers = figures.get("tiers") or {}
    if tiers:
        where = {f'{{tier="{name}"}}': tiers[name] for name in ("vram", "ram", "disk")}
        yield from _family("experts", "gauge", where)
    turn = figures.get("last_turn")
    if turn:
        yield from _family("last_turn_seconds", "gauge", {"": turn["wall_s"]})
        yield from _family("last_turn_tokens", "gauge", {"": turn["completion_tokens"]})


def _family(name: str, kind: str, values: Mapping[str, float]) -> Iterator[str]:
    yield f"# TYPE colibri_{name} {kind}"
    for labels, value in values.items():
        yield f"colibri_{name}{labels} {value:g}"


def _check(context: CheckContext) -> CheckResult:
    del context
    name = str(_values["file"])
    if not name:
        return CheckResult(CheckStatus.SKIP, "no file is set")
    folder = Path(name).expanduser().absolute().parent
    if not folder.is_dir():
        return CheckResult(CheckStatus.FAIL, f"the folder {folder} does not exist")
    return CheckResult(CheckStatus.PASS, f"figures go to {name}")
