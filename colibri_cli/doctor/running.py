"""Running all checks, ours and those of plugins; one that breaks is itself a failed check."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.doctor.examination import DoctorReport, Examination, failed
from colibri_cli.doctor.machine_checks import ENGINE_CHECKS, MACHINE_CHECKS
from colibri_cli.doctor.model_checks import DEEP_CHECKS, MODEL_CHECKS, WEIGHT_CHECKS
from colibri_cli.errors import ModelNotFound
from colibri_cli.model_store.inspection import inspect_model
from colibri_cli.model_store.store import locate_model
from colibri_cli.plugin_loader import plugin_checks
from colibri_cli.plugin_types import CheckContext, CheckResult, CheckStatus

if TYPE_CHECKING:
    from colibri_cli.doctor.examination import Check
    from colibri_cli.plugin_types import DoctorCheck
    from colibri_protocol.settings import ResolvedSettings

_CONFIG_LIMIT: Final = 16 * 1024 * 1024


def examine(wanted: str, settings: ResolvedSettings, *, is_deep: bool) -> DoctorReport:
    """Run all checks on the model named."""
    path = _located(wanted)
    config, problem = _read_config(path)
    context = CheckContext(path, config, settings, is_deep)
    exam = Examination(context, wanted, inspect_model(path or Path(wanted), settings), problem)
    shown = None if path is None else str(path)
    report = DoctorReport(shown or wanted, "deep" if is_deep else "standard")
    ours = [*MODEL_CHECKS, *ENGINE_CHECKS, *WEIGHT_CHECKS]
    ours += [*DEEP_CHECKS] if is_deep else []
    ours += [*MACHINE_CHECKS]
    report.checks = [(check_id, _run(check, exam)) for check_id, check in ours]
    report.checks += [
        (check_id, _run_foreign(check, context)) for check_id, check in plugin_checks()
    ]
    return report


def without_model() -> DoctorReport:
    """Return the report of a run that names no model."""
    report = DoctorReport(None, "standard")
    text = "no model was given: name one with --model or COLI_MODEL"
    report.checks = [("config.arguments", CheckResult(CheckStatus.FAIL, text))]
    return report


def _located(wanted: str) -> Path | None:
    try:
        return locate_model(wanted)[0]
    except ModelNotFound:
        return None


def _read_config(path: Path | None) -> tuple[dict[str, Any] | None, str | None]:
    """Return the model's `config.json`, and what is wrong with it."""
    file = None if path is None else path / "config.json"
    if file is None or not file.is_file():
        return None, None
    try:
        with file.open("rb") as opened:
            config = json.loads(opened.read(_CONFIG_LIMIT))
    except OSError as error:
        return None, f"{file} cannot be read: {error.strerror}"
    except (ValueError, RecursionError):  # brackets in brackets beyond the stack
        return None, f"{file} is not JSON"
    return (config, None) if isinstance(config, dict) else (None, f"{file} holds no JSON object")


def _run(check: Check, exam: Examination) -> CheckResult:
    try:
        return check(exam)
    except OSError as error:  # a drive that fails must not hide the other checks
        where = f" {error.filename}" if error.filename else ""
        return failed(f"the storage could not be read:{where} {error.strerror}")


def _run_foreign(check: DoctorCheck, context: CheckContext) -> CheckResult:
    try:
        return check(context)
    except Exception as error:  # noqa: BLE001 - whatever a plugin raises
        return failed(f"the plugin's check broke: {type(error).__name__}: {error}")
