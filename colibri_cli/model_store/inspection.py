"""What a model is, as the engine's own loader sees it, without its weights."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.model_store.engine_job import run_job
from colibri_protocol.errors import ColibriError

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_protocol.settings import ResolvedSettings

_FIRST: Final = "files"  # without it there are no others but the machine
_LATER: Final = "an earlier step failed"


@dataclass(frozen=True, slots=True)
class StageError:
    """Why a stage failed."""

    code: str
    message: str
    hint: str | None = None


@dataclass(slots=True)
class Inspection:
    """The stages that were gone through: files, texts, config, tokenizer, tensors, memory, machine.

    Args:
        stages: What each found, by name.
        errors: Why each of the others failed.
        crash: Why the engine could not look at all; None if it could.
    """

    stages: dict[str, dict[str, Any]] = field(default_factory=dict)
    errors: dict[str, StageError] = field(default_factory=dict)
    crash: str | None = None

    def why_not(self, stage: str) -> str:
        """Return why there is nothing of a stage."""
        error = self.errors.get(stage) or self.errors.get(_FIRST)
        return error.message if error is not None else self.crash or _LATER

    def get(self, stage: str, key: str) -> Any:  # noqa: ANN401 - JSON
        """Return one value a stage found, or None."""
        return self.stages.get(stage, {}).get(key)


def inspect_model(path: Path, settings: ResolvedSettings) -> Inspection:
    """Let the engine look at a model's headers; whatever goes wrong stands in the result.

    Args:
        path: Directory or file.
        settings: Those its engine would be started with.
    """
    environment = {**settings.engine_environment(), "SNAP": str(path)}
    found = Inspection()

    def take(word: str, text: str) -> None:
        if word != "STAGE":
            return
        body = json.loads(text)
        name, error = body.pop("stage"), body.get("error")
        if error is None:
            found.stages[name] = body
        else:
            found.errors[name] = StageError(error["code"], error["message"], error["hint"])

    try:
        run_job("inspect", [str(path)], take, environment=environment)
    except ColibriError as error:
        found.crash = error.message
    return found
