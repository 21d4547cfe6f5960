"""The parts of a bug report: what each is, and where it comes from.

What does not exist here is named with the reason, not left out in silence. Nothing is loaded, and
nobody is asked over the network.
"""

from __future__ import annotations

import platform
import sys
from dataclasses import dataclass
from importlib import metadata
from typing import TYPE_CHECKING, Any, Final

from colibri_cli import __version__
from colibri_cli.bug_report.log_lines import last_lines
from colibri_cli.bug_report.masking import MASK, is_secret_name
from colibri_cli.errors import UsageError
from colibri_protocol.errors import ColibriError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from colibri_protocol.settings import ResolvedSettings

_PACKAGES: Final = (
    "colibri-cli", "h11", "httpx", "huggingface_hub", "jinja2", "llguidance", "numpy", "pluggy",
    "prompt_toolkit", "rich", "tokenizers", "typer",
)  # fmt: skip
_SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Sources:
    """Where a report comes from.

    Args:
        settings: Effective settings, of any command.
        log: File of log lines; None: none is set.
        diag: Folder that `coli diag` wrote to.
        has_conversations: What people said goes in too.
    """

    settings: ResolvedSettings
    log: Path | None
    diag: Path
    has_conversations: bool = False


@dataclass(frozen=True, slots=True)
class Part:
    """One file of the report.

    Args:
        name: Its name in the archive.
        what: What it is, for people.
        content: A document, a text, or None where there is nothing.
        reason: Why there is nothing.
    """

    name: str
    what: str
    content: Any
    reason: str = ""


def parts_of(sources: Sources) -> list[Part]:
    """Return all parts, absent ones too."""
    return [
        Part("version.json", "version, Python, packages, system", _version()),
        _attempt("doctor.json", "checks of `coli doctor`", lambda: _doctor(sources)),
        _attempt("info.json", "facts of the model, `coli info`", lambda: _info(sources)),
        Part("settings.json", "settings with their sources", _settings(sources)),
        _log(sources),
        _diag(sources),
        _conversation(sources),
    ]


def _version() -> dict[str, Any]:
    return {
        "schema_version": _SCHEMA_VERSION,
        "coli": __version__,
        "python": sys.version,
        "system": platform.platform(),
        "machine": platform.machine(),
        "packages": {name: _installed(name) for name in _PACKAGES},
    }


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _doctor(sources: Sources) -> dict[str, Any]:
    from colibri_cli.doctor.running import examine, without_model

    wanted = sources.settings.text("model")
    found = without_model() if wanted is None else examine(wanted, sources.settings, is_deep=False)
    return found.document()


def _info(sources: Sources) -> dict[str, Any] | None:
    wanted = sources.settings.text("model")
    if wanted is None:
        return None
    from colibri_cli.model_store.facts import facts_of
    from colibri_cli.model_store.inspection import inspect_model
    from colibri_cli.model_store.store import locate_model

    path, name = locate_model(wanted)
    return facts_of(path, name, inspect_model(path, sources.settings), sources.settings)


def _settings(sources: Sources) -> dict[str, Any]:
    return {
        "schema_version": _SCHEMA_VERSION,
        "settings": {
            name: {
                "value": MASK if is_secret_name(name) and row.value is not None else row.value,
                "origin": row.origin.kind.value,
                "source": row.origin.name or None,
            }
            for name, row in sources.settings.items()
        },
    }


def _log(sources: Sources) -> Part:
    name, what = "log.txt", "last lines of the log file"
    if sources.log is None:
        return Part(name, what, None, "no log file is set; --log-file names one")
    try:
        lines = last_lines(sources.log, has_content=sources.has_conversations)
    except OSError as error:
        return Part(name, what, None, f"{sources.log} cannot be read ({error.strerror})")
    return Part(name, what, "\n".join(lines) + "\n" if lines else None, "it is empty")


def _diag(sources: Sources) -> Part:
    from colibri_cli.diag.report import JSON_NAME, read_report

    file, what = sources.diag / JSON_NAME, "last report of `coli diag`"
    if not file.is_file():
        return Part("diag.json", what, None, f"there is no {file}; --diag DIR names another folder")
    return _attempt("diag.json", what, lambda: read_report(file))


def _conversation(sources: Sources) -> Part:
    name, what = "conversation.json", "the last conversation that was kept"
    if not sources.has_conversations:
        return Part(name, what, None, "what was said stays here; --with-log adds it")
    from colibri_cli.paths import chat_log_file

    if not chat_log_file().is_file():
        return Part(name, what, None, "none was kept")
    return _attempt(name, what, _last_conversation)


def _last_conversation() -> Any:  # noqa: ANN401 - a document
    import json

    from colibri_cli.chat_log.export import as_json
    from colibri_cli.chat_log.store import ChatLog
    from colibri_cli.paths import chat_log_file

    with ChatLog(chat_log_file()) as log:
        found = log.conversations(1)
        return json.loads(as_json(found[0], log.turns(found[0]))) if found else None


def _attempt(name: str, what: str, make: Callable[[], Any]) -> Part:
    """Return a part; an error in making it is itself worth reporting."""
    try:
        content = make()
    except (ColibriError, OSError) as error:
        hint = error.hint if isinstance(error, ColibriError) else None
        return Part(name, what, {"error": {"message": str(error), "hint": hint}})
    no_model = "no model was given: name one with --model" if name == "info.json" else "none"
    return Part(name, what, content, no_model)


def check_named(flag: str, path: Path) -> Path:
    """Return a file or folder that a user named.

    Raises:
        UsageError: there is none.
    """
    if not path.exists():
        raise UsageError(f"{flag}: there is no {path}")
    return path
