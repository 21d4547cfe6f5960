"""Runs of the atlas: one prompt each, and how often every expert was chosen for it.

A run is a file of its own, written whole when the run is over: a sweep that was interrupted goes on
where it stopped, and what another model or length measured is never taken for it.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from colibri_cli.plugin_api import ColibriError, LocalEngine, UsageError

PROBES: Final = Path(__file__).with_name("_atlas_probes.json")
_KIND: Final = "atlas run"
_VERSION: Final = 1
_TOPIC: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
_MAX_BYTES: Final = 64 << 20
_UNLIKE: Final = "\n"  # no prompt begins like it, so the next one finds nothing to reuse


@dataclass(frozen=True, slots=True)
class Run:
    """What one prompt asked of the experts.

    Args:
        model: The model's name, architecture, bytes and experts per token; see `identity`.
        topic: What the prompt is about.
        prompt: Its text.
        max_tokens: Tokens that were generated, whatever the model said.
        layers: Number in the model of each row of `counts`.
        counts: Selections, a row per layer with experts, for prompt and answer together.
    """

    model: Mapping[str, object]
    topic: str
    prompt: str
    max_tokens: int
    layers: tuple[int, ...]
    counts: tuple[tuple[int, ...], ...]

    @property
    def shares(self) -> list[float]:
        """(layers · experts) each expert's part of all selections."""
        total = sum(map(sum, self.counts))
        return [count / total for row in self.counts for count in row]


def read_probes(path: Path) -> dict[str, list[str]]:
    """Return the prompts by topic.

    Raises:
        UsageError: it is no JSON object of lists of texts.
    """
    body = _read_json(path)
    if not isinstance(body, dict) or len(body) < 2:
        raise UsageError(f"{path} is no JSON object with at least two topics")
    for topic, prompts in body.items():
        if not _TOPIC.fullmatch(topic):
            raise UsageError(f"{path}: {topic!r} is no name of a topic", hint="use letters and _")
        is_right = isinstance(prompts, list) and all(isinstance(p, str) and p for p in prompts)
        if not is_right or not prompts or len(set(prompts)) < len(prompts):
            raise UsageError(f"{path}: {topic} has no list of different texts")
    return body


async def sweep(
    engine: LocalEngine,
    probes: Mapping[str, Sequence[str]],
    folder: Path,
    max_tokens: int,
    tell: Callable[[str], None],
) -> tuple[int, int]:
    """Ask every prompt whose run is not there yet; return how many ran and how many were there.

    Args:
        engine: Opened without drafts, with one slot.
        probes: Prompts by topic.
        folder: Where the runs are kept.
        max_tokens: Tokens to generate for each.
        tell: Called with a line about each run.

    Raises:
        ColibriError: the engine does not tell which experts it chose, or a run cannot be written.
    """
    model = identity(engine)
    numbers: Any = engine.card.details["mixture_layers"]
    layers = tuple(map(int, numbers))
    waiting = [(topic, prompt) for topic, prompts in probes.items() for prompt in prompts]
    found = {key: _path(folder, model, max_tokens, *key) for key in waiting}
    todo = [key for key in waiting if not found[key].is_file()]
    for number, (topic, prompt) in enumerate(todo, 1):
        await engine.complete(_UNLIKE, 1)
        before = await _counts(engine)
        reply = await engine.answer(prompt, max_tokens, runs_on=True)
        after = await _counts(engine)
        if reply.done.reused_tokens:
            raise ColibriError(
                f"the engine reused {reply.done.reused_tokens} tokens, which it did not count",
                hint="run the sweep with an engine that has one slot",
            )
        counts = tuple(
            tuple(new - old for old, new in zip(*rows, strict=True))
            for rows in zip(before, after, strict=True)
        )
        _write(found[topic, prompt], Run(model, topic, prompt, max_tokens, layers, counts))
        tell(
            f"{number} of {len(todo)}: {topic}, {reply.done.prompt_tokens} tokens read, "
            f"{reply.done.completion_tokens} written, {reply.done.tokens_per_second:.2f} tok/s"
        )
    return len(todo), len(waiting) - len(todo)


def identity(engine: LocalEngine) -> dict[str, object]:
    """Return what tells the experts of one model from those of another.

    Raises:
        ColibriError: it has none, or its engine does not tell which it chose.
    """
    card = engine.card
    if not card.num_experts:
        raise ColibriError(
            f"{card.id} has no experts: there is nothing to map",
            hint="name a mixture of experts with --model",
        )
    if "mixture_layers" not in card.details:
        raise ColibriError(
            "this engine does not tell which experts it chose", hint="leave out --engine-bin"
        )
    return {
        "id": card.id,
        "family": card.family,
        "file_bytes": card.file_bytes,
        "experts_per_token": card.details.get("num_experts_per_token"),
    }


def read_runs(folder: Path) -> list[Run]:
    """Return all runs of a folder, by topic.

    Raises:
        UsageError: there are none, one is damaged, or they are of several models or lengths.
    """
    runs = [_read(path) for path in sorted(folder.glob("*.run.json"))]
    if not runs:
        raise UsageError(f"there are no runs in {folder}", hint="make them: coli atlas sweep")
    first = runs[0]
    for run in runs:
        if (run.model, run.max_tokens) != (first.model, first.max_tokens):
            raise UsageError(
                f"{folder} has runs of {_text(first)} and of {_text(run)}",
                hint="sweep each into a folder of its own, with --out",
            )
    return runs


def write_json(path: Path, body: object) -> None:
    """Put a whole file in a path's place.

    Raises:
        ColibriError: it cannot be written.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(json.dumps(body, ensure_ascii=False) + "\n", encoding="utf-8")
        temporary.replace(path)
    except OSError as error:
        raise ColibriError(f"cannot write {path}: {error.strerror}") from error


async def _counts(engine: LocalEngine) -> list[list[int]]:
    counts: Any = (await engine.counters()).get("routing_counts")
    if not counts:
        raise ColibriError(
            "this engine does not tell which experts it chose", hint="leave out --engine-bin"
        )
    return [list(row) for row in counts]


def _path(
    folder: Path, model: Mapping[str, object], max_tokens: int, topic: str, prompt: str
) -> Path:
    """Return the file of a run; its name holds a digest of all that the counts depend on."""
    key = json.dumps([dict(model), max_tokens, topic, prompt], sort_keys=True)
    return folder / f"{topic}-{hashlib.sha256(key.encode()).hexdigest()[:12]}.run.json"


def _write(path: Path, run: Run) -> None:
    write_json(path, {"kind": _KIND, "schema_version": _VERSION, **asdict(run)})


def _read(path: Path) -> Run:
    body = _read_json(path)
    refused = UsageError(f"{path} is no run of an atlas", hint="remove it and sweep anew")
    try:
        is_ours = (body.pop("kind"), body.pop("schema_version")) == (_KIND, _VERSION)
        counts = tuple(tuple(map(int, row)) for row in body.pop("counts"))
        run = Run(layers=tuple(map(int, body.pop("layers"))), counts=counts, **body)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise refused from error
    is_whole = len(run.layers) == len(counts) and sum(map(sum, counts)) > 0
    if not is_ours or not is_whole or min(map(min, counts)) < 0:
        raise refused
    return run


def _read_json(path: Path) -> Any:  # noqa: ANN401 - whatever the file holds
    try:
        with path.open("rb") as file:
            return json.loads(file.read(_MAX_BYTES))
    except OSError as error:
        raise UsageError(f"{path} cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise UsageError(f"{path} is no JSON") from error


def _text(run: Run) -> str:
    return f"{run.model.get('id')}, {run.max_tokens} tokens each"
