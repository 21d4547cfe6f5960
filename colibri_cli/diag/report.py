"""The report: one JSON document that everything printed or compared is taken from."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from colibri_cli import __version__
from colibri_cli.diag.metrics import METRICS
from colibri_cli.errors import DiagError, UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from colibri_cli.diag.phases.base import PhaseResult

SCHEMA_VERSION: Final = 1
KIND: Final = "coli diag"
JSON_NAME: Final = "report.json"
TEXT_NAME: Final = "report.md"
_MAX_BYTES: Final = 16 * 1024 * 1024
_IDENTITY: Final = (
    "family", "num_layers", "num_experts", "num_experts_per_token", "vocab_size", "file_bytes",
)  # fmt: skip

Document = dict[str, Any]


@dataclass(slots=True)
class Report:
    """What the phases found, in the order they ran; an error ends its phase only.

    Args:
        phases: Result of each phase.
        seconds: How long each took.
        errors: Why a phase could not be finished, one line, by its name.
    """

    phases: dict[str, PhaseResult] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)

    def document(self) -> Document:
        """Return the JSON document, still without a comparison."""
        metrics = {
            name: {"value": value, "unit": METRICS[name].unit}
            for result in self.phases.values()
            for name, value in result.metrics.items()
        }
        return {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "version": __version__,
            "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
            "status": "failed" if self.problems() else "ok",
            "problems": self.problems(),
            "metrics": metrics,
            "phases": {name: self._phase(name) for name in self.seconds},
            "comparison": None,
        }

    def problems(self) -> list[str]:
        """Return what is wrong with this build whatever an earlier one did."""
        failed = [f"{name} could not be finished: {text}" for name, text in self.errors.items()]
        return failed + [p for result in self.phases.values() for p in result.problems]

    def _phase(self, name: str) -> Document:
        shared = {"seconds": round(self.seconds[name], 2)}
        if name in self.errors:
            return {"state": "failed", "error": self.errors[name], **shared}
        result = self.phases[name]
        if result.skipped is not None:
            return {"state": "skipped", "reason": result.skipped, **shared}
        return {"state": "done", **shared, **result.details}


def identity(document: Mapping[str, Any]) -> Document:
    """Return what two reports must share to be comparable: the model, and how it computes."""
    system = document["phases"]["system"]
    model = {key: system["model"].get(key) for key in _IDENTITY}
    # Of a model behind a server hardly more than its name is known.
    served = system["model"].get("id") if system.get("server") else None
    return {**model, "numerics": system["engine"].get("numerics"), "served": served}


def machine_of(document: Mapping[str, Any]) -> tuple[object, ...]:
    """Return what two reports must share for their speeds to be comparable."""
    system = document["phases"]["system"]
    machine = system["machine"] or {}
    threads = system["engine"].get("num_threads")
    return (machine.get("cpu"), machine.get("num_cores"), threads, system.get("server"))


def read_report(path: Path) -> Document:
    """Return the document of an earlier report.

    Raises:
        UsageError: it is none.
    """
    hint = f"name a {JSON_NAME} that `coli diag` wrote"
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_MAX_BYTES))
    except OSError as error:
        raise UsageError(
            f"the report {path} cannot be read ({error.strerror})", hint=hint
        ) from error
    except ValueError as error:
        raise UsageError(f"{path} is not JSON", hint=hint) from error
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise UsageError(f"{path} is not a report of `coli diag`", hint=hint)
    if document.get("schema_version") != SCHEMA_VERSION:
        version = document.get("schema_version")
        raise UsageError(
            f"{path} has the report version {version!r}, this is {SCHEMA_VERSION}",
            hint="make a new baseline with this version",
        )
    try:
        identity(document), machine_of(document)
        for name, row in document["metrics"].items():
            float(row["value"])
            str(name)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UsageError(f"{path} is an incomplete report", hint=hint) from error
    return document


def write_reports(directory: Path, document: Document, text: str) -> None:
    """Write both files; each is whole or not there.

    Raises:
        DiagError: that is not possible.
    """
    body = json.dumps(document, indent=2, ensure_ascii=False, allow_nan=False) + "\n"
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, content in ((JSON_NAME, body), (TEXT_NAME, text)):
            temporary = directory / f".{name}.{os.getpid()}"
            temporary.write_text(content, encoding="utf-8")
            temporary.replace(directory / name)
    except OSError as error:
        raise DiagError(
            f"the report cannot be written to {directory} ({error.strerror})",
            hint="name another folder with --out",
        ) from error
