"""What the checks look at, and the report they make."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.plugin_types import CheckContext, CheckResult, CheckStatus

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from colibri_cli.model_store.inspection import Inspection

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Examination:
    """One run of the doctor.

    Args:
        context: Model path, its `config.json`, settings; what plugins see too.
        wanted: The model as it was named.
        inspection: What the engine's loader saw.
        config_problem: Why `config.json` cannot be read; None if it can, or there is none.
    """

    context: CheckContext
    wanted: str
    inspection: Inspection
    config_problem: str | None = None

    @property
    def path(self) -> Path | None:
        """Directory or file of the model; None if it does not exist."""
        return self.context.model_path

    @property
    def folder(self) -> Path | None:
        """The folder that holds the model's files."""
        if self.path is None or self.path.is_dir():
            return self.path
        return self.path.parent


Check = Callable[[Examination], CheckResult]


@dataclass(slots=True)
class DoctorReport:
    """The results of all checks, in order."""

    model: str | None
    mode: str
    checks: list[tuple[str, CheckResult]] = field(default_factory=list)

    @property
    def status(self) -> str:
        """Return "error" if a check failed, "warning" if one warned, else "ok"."""
        found = {result.status for _, result in self.checks}
        if CheckStatus.FAIL in found:
            return "error"
        return "warning" if CheckStatus.WARN in found else "ok"

    def document(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "schema_version": SCHEMA_VERSION,
            "status": self.status,
            "model": self.model,
            "mode": self.mode,
            "checks": [_row(check_id, result) for check_id, result in self.checks],
        }


def passed(summary: str, **details: object) -> CheckResult:
    """Return a result: all is well."""
    return CheckResult(CheckStatus.PASS, summary, details)


def warned(summary: str, **details: object) -> CheckResult:
    """Return a result: usable, but worth knowing."""
    return CheckResult(CheckStatus.WARN, summary, details)


def failed(summary: str, **details: object) -> CheckResult:
    """Return a result: not usable."""
    return CheckResult(CheckStatus.FAIL, summary, details)


def skipped(summary: str, **details: object) -> CheckResult:
    """Return a result: nothing to check."""
    return CheckResult(CheckStatus.SKIP, summary, details)


def _row(check_id: str, result: CheckResult) -> Mapping[str, object]:
    row: dict[str, object] = {
        "id": check_id,
        "status": result.status.value,
        "summary": result.summary,
    }
    if result.details:
        row["details"] = dict(result.details)
    return row
