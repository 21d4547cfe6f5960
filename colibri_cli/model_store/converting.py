"""`coli convert` without its options: find the source, run the engine's job, show how it goes."""

from __future__ import annotations

import json
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from colibri_cli.console import byte_meters, notice
from colibri_cli.errors import UsageError
from colibri_cli.model_store.engine_job import run_job
from colibri_cli.model_store.hub_source import HEADERS, SOURCE, Fetcher, prepare_source
from colibri_cli.model_store.hugging_face import parse_hub_spec
from colibri_cli.model_store.store import exclusive, locate_model, remove_tree
from colibri_cli.plugin_parts import converters

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from colibri_cli.console import Meters


_HUB_LOCK: Final = ".coli-fetch.lock"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConvertRequest:
    """One `coli convert`.

    Args:
        source: A path, the name of a pulled model, or `hf:ORG/NAME`.
        out: The directory of the result.
        arguments: Further arguments of the job, by name without dashes; None for a switch.
        dry_run: Only plan.
        revision: Branch, tag or commit; only for `hf:`.
    """

    source: str
    out: Path
    arguments: Mapping[str, str | None] = field(default_factory=dict)
    dry_run: bool = False
    revision: str | None = None


class PlanView(Protocol):
    """Somebody to show the plan to before anything is written."""

    def __call__(self, plan: dict[str, Any]) -> None:
        """Show it."""
        ...


def convert_model(request: ConvertRequest, show_plan: PlanView) -> None:
    """Convert a model.

    Raises:
        ModelNotFound: the source is neither a path nor a pulled model.
        PullError: the source cannot be fetched from the hub.
        JobFailed: the engine refused or failed; the code is its own.
    """
    if request.source.startswith("hf:"):
        _convert_from_hub(request, show_plan)
        return
    if request.revision is not None:
        raise UsageError(
            "--revision is only for hf:ORG/NAME", hint="leave it out, or name the source so"
        )
    scheme, colon, what = request.source.partition(":")
    converter = converters().get(scheme) if colon and not Path(request.source).exists() else None
    if converter is None:
        _convert(request, locate_model(request.source)[0], show_plan)
        return
    place = _parent_of(request.out)  # as large as the model, so on the disk of the result
    with tempfile.TemporaryDirectory(prefix=".coli-", dir=place) as directory:
        converter(what, Path(directory))
        _convert(request, Path(directory), show_plan)


def _convert(request: ConvertRequest, path: Path, show_plan: PlanView) -> None:
    arguments = _arguments(request, path)
    with byte_meters() as meters:
        run_job("convert", arguments, _Lines(request.out, meters, show_plan))


def _convert_from_hub(request: ConvertRequest, show_plan: PlanView) -> None:
    if request.dry_run:  # leaves nothing behind
        with tempfile.TemporaryDirectory(prefix="coli-") as directory:
            _run_fetching(request, Path(directory), show_plan)
        return
    with exclusive(request.out / _HUB_LOCK, f"{request.out} is being written"):
        _run_fetching(request, request.out / SOURCE, show_plan)
        remove_tree(request.out / SOURCE)


def _run_fetching(request: ConvertRequest, directory: Path, show_plan: PlanView) -> None:
    repository, _ = parse_hub_spec(request.source, None)
    files = prepare_source(repository, request.revision, directory)
    with byte_meters() as meters:
        lines = _Lines(request.out, meters, show_plan)

        def start_fetching(answer: Callable[[str], None]) -> None:
            lines.fetcher = Fetcher(files, directory, answer, meters)

        arguments = [*_arguments(request, directory), "--arriving", str(directory / HEADERS)]
        arguments += ["--commit", files.commit]
        run_job("convert", arguments, lines, on_start=start_fetching)


def _arguments(request: ConvertRequest, source: Path) -> list[str]:
    arguments = ["--source", str(source), "--out", str(request.out)]
    for name, value in request.arguments.items():
        arguments += [f"--{name}"] if value is None else [f"--{name}", value]
    if request.dry_run:
        arguments.append("--dry-run")
    return arguments


class _Lines:
    """Shows the lines of the job."""

    def __init__(self, out: Path, meters: Meters, show_plan: PlanView) -> None:
        self._out = out
        self._meters = meters
        self._show_plan = show_plan
        self.fetcher: Fetcher | None = None

    def __call__(self, word: str, rest: str) -> None:
        if word == "PLAN":
            self._show_plan(json.loads(rest))
        elif word == "NOTE":
            notice(rest)
        elif word == "PROGRESS":
            done, total = map(int, rest.split())
            self._meters.update("total", "converting", done, total)
        elif word == "FILE":
            place, count, done_text, total_text, name = rest.split(" ", 4)
            title = f"[{place}/{count}] {name}, {_free_bytes(self._out) / 1e9:.1f} GB free"
            self._meters.update("file", title, int(done_text), int(total_text))
        elif word == "NEED" and self.fetcher is not None:
            self.fetcher.need(rest)
        elif word == "DONE" and self.fetcher is not None:
            self.fetcher.done(rest)


def _parent_of(path: Path) -> Path:
    return next(parent for parent in (path, *path.resolve().parents) if parent.exists())


def _free_bytes(path: Path) -> int:
    return shutil.disk_usage(_parent_of(path)).free
