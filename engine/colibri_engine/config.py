"""The configuration of one engine process, read once from argument list and environment.

The only reader of the environment in this package. A leaf: names and ranges of the settings stand
in `colibri_protocol.settings`, effects where each value is used.
"""

from __future__ import annotations

import math
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_engine.errors import NoModel, SettingsError
from colibri_protocol.foreign_variables import foreign_variables
from colibri_protocol.settings import Scope, resolve, unknown_variables

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from colibri_protocol.settings import ResolvedSettings

DEFAULT_CONTEXT: Final = 4096
GB: Final = 1_000_000_000
DEFAULT_MAX_TOKENS: Final = 256
_PARENT_ENV: Final = "COLI_PARENT_PID"
_CAPS_ENV: Final = "COLI_CAPS"
_DISKS_FILE: Final = "disks.json"
_APP: Final = "colibri"  # name of its directories


MAX_DRAFTED_ROWS: Final = 64  # of one step, all replies together: each has its logits


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """How tokens are guessed ahead.

    Args:
        source: "off", "auto", or the one source to use.
        tokens: Guessed per step; None: as many as pay.
        has_mtp: Whether a draft layer may be loaded.
        grammar_tokens: Most that are taken from a grammar at once.
        grammar_path: File with a grammar that replies are expected to follow.
        mtp_guard_percent: Guesses of the draft layer that must come true, else it rests; 0: any.
        mtp_guard_window: Drafts over which that is looked at.
    """

    source: str = "auto"
    tokens: int | None = None
    has_mtp: bool = True
    grammar_tokens: int = 24
    grammar_path: Path | None = None
    mtp_guard_percent: int = 0
    mtp_guard_window: int = 24


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """How experts that are not in memory are read, and from which disks.

    Args:
        mode: "auto", "io_uring" or "threads".
        depth: Parts that are read from one device at the same time; None: what suits the mode.
        direct: Around the system's cache of files, or through it; None: as measured.
        mirrors: Directories with copies of the weight files.
        weights: Shares of the model's own disk and of each mirror; None: as measured.
        cache: The file that keeps measurements of disks; None: measure at every start.
    """

    mode: str = "auto"
    depth: int | None = None
    direct: bool | None = None
    mirrors: tuple[Path, ...] = ()
    weights: tuple[float, ...] | None = None
    cache: Path | None = None


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """What is kept of which experts were used.

    Args:
        path: The file; None: `.coli_usage` beside the model.
        is_saved: Read it, and add to it.
        decay: What old counts are multiplied by at each save; None: by as much as is new.
        pins: Keep in memory what it says is used most.
        repin_tokens: Tokens between two exchanges of cold pins; 0: none.
    """

    path: Path | None = None
    is_saved: bool = True
    decay: float | None = None
    pins: bool = True
    repin_tokens: int = 0


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """How much memory there is for the model, and how what does not fit is read.

    Args:
        ram_bytes: All the engine may take; None: most of what is available.
        cap: Experts of each layer that stay in memory; None: as many as fit.
        may_raise: Keep more than `cap` where they fit: an older gateway named a number.
        reads: How, and from which disks.
        looks_ahead: Read what is likely to be asked for while the disk has nothing else to do.
        history: What is kept of which experts were used.
        guard_bytes: Memory beyond which slots are given back; None: what the engine may take.
    """

    ram_bytes: int | None = None
    cap: int | None = None
    may_raise: bool = True
    reads: ReadConfig = field(default_factory=ReadConfig)
    looks_ahead: bool = True
    history: HistoryConfig = field(default_factory=HistoryConfig)
    guard_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Extensions:
    """What plugins add to the engine, as modules by name.

    Args:
        models: By `model_type`.
        formats: By the name of the number format.
    """

    models: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything an engine process is told.

    Args:
        model_path: Model directory or GGUF file.
        model_dirs: Further directories with weight files of it.
        has_caps: The gateway knows the extended forms of the protocol.
        context_length: Positions per slot.
        is_context_given: Somebody asked for that many.
        num_slots: KV slots.
        numerics: "default", "fast" or "float".
        num_threads: Threads that compute; None: the cores this process may use.
        isa: Forced instruction set, or None.
        prefill_chunk: Prompt rows per step.
        max_tokens: Reply length where a request says nothing.
        temperature: Where a request says nothing; None: the model's own.
        top_p: Likewise.
        seed: Seed of requests that bring none; None: a new one each time.
        experts_per_token: Another number of experts than the model's own, or None.
        drafts: How tokens are guessed ahead.
        memory: What the model may take of it.
        log_level: Name of the least severe level that is logged.
        kv_save: Save conversations, and go on from saved ones.
        kv_dir: Directory of saved conversations; None: beside the model.
        kv_share: Copy rows that two conversations have in common.
        kv_dtype: What rows of conversations are kept as: "f32" or "bf16".
        state_dir: The user's state directory of this program.
        parent_pid: Process to live and die with, if it said so.
        unknown: Variables with our prefix that nobody reads, and the nearest known name.
        foreign: Variables of other engines that are not read here, and what there is instead.
    """

    model_path: Path
    model_dirs: tuple[Path, ...]
    has_caps: bool
    context_length: int
    is_context_given: bool
    num_slots: int
    numerics: str
    num_threads: int | None
    isa: str | None
    prefill_chunk: int
    max_tokens: int
    temperature: float | None
    top_p: float | None
    seed: int | None
    experts_per_token: int | None
    drafts: DraftConfig
    memory: MemoryConfig
    log_level: str
    kv_save: bool
    kv_dir: Path | None
    kv_share: bool
    kv_dtype: str
    state_dir: Path
    parent_pid: int | None
    unknown: Mapping[str, str | None]
    foreign: Mapping[str, str]

    @property
    def step_rows(self) -> int:
        """Rows of the largest step."""
        is_drafting = self.drafts.source != "off" and self.drafts.tokens != 0
        return self.prefill_chunk + self.num_slots + MAX_DRAFTED_ROWS * is_drafting


def variables() -> dict[str, str]:
    """Return the environment, to read a configuration from with some of it changed."""
    return dict(os.environ)


def read_extensions(environ: Mapping[str, str] | None = None) -> Extensions:
    """Read what plugins add.

    Args:
        environ: The environment; None: this process's own.

    Raises:
        SettingsError: it is no list of NAME=MODULE.
    """
    environ = os.environ if environ is None else environ
    return Extensions(
        _modules(environ, "COLI_MODEL_MODULES"), _modules(environ, "COLI_QUANT_MODULES")
    )


def _modules(environ: Mapping[str, str], variable: str) -> dict[str, str]:
    found = {}
    for word in filter(None, environ.get(variable, "").split(",")):
        name, _, module = word.partition("=")
        if not name or not all(part.isidentifier() for part in module.split(".")):
            raise SettingsError(
                f"{variable}: {word!r} is not of the form NAME=MODULE",
                setting=variable,
                source=variable,
            )
        found[name] = module
    return found


def read_config(argv: Sequence[str], environ: Mapping[str, str] | None = None) -> EngineConfig:
    """Read the configuration.

    Args:
        argv: Arguments after the program's name: at most the number of expert cache slots per
            layer that older gateways pass: the least they want, so more are taken where they fit.
        environ: The environment; None: this process's own.

    Raises:
        SettingsError: A value cannot be used.
        NoModel: No model was given.
    """
    environ = os.environ if environ is None else environ
    _check_arguments(argv)
    found = resolve({}, environ, {}, scope=Scope.ENGINE)
    model = found.text("model_path")
    state_dir = _state_dir(environ)
    if model is None:
        raise NoModel(
            "no model folder was given", hint="set SNAP or COLI_MODEL to a model directory or file"
        )
    return EngineConfig(
        model_path=Path(model),
        has_caps=bool(found.switch("caps")),
        context_length=_context_length(found),
        is_context_given=bool(found.integer("ctx")),
        num_slots=found.integer("kv_slots") or 1,
        numerics=found.text("numerics") or "default",
        num_threads=found.integer("num_threads"),
        isa=found.text("isa"),
        prefill_chunk=found.integer("prefill_chunk") or 1,
        max_tokens=found.integer("max_tokens") or DEFAULT_MAX_TOKENS,
        temperature=found.number("temperature"),
        top_p=found.number("top_p"),
        seed=found.integer("seed"),
        experts_per_token=found.integer("experts_per_token") or None,
        drafts=_drafts(found),
        model_dirs=_paths(found.text("model_dirs")),
        memory=_memory(found, int(argv[0]) if argv else 0, state_dir),
        log_level=(found.text("log") or "warning").upper(),
        kv_save=found.switch("kv_save") is not False,
        kv_dir=_optional_path(found.text("kv_dir")),
        kv_share=found.switch("kv_share") is not False,
        kv_dtype=found.text("kv_dtype") or "f32",
        state_dir=state_dir,
        parent_pid=_parent_pid(environ),
        unknown=unknown_variables(environ),
        foreign=foreign_variables(environ),
    )


def wants_caps(environ: Mapping[str, str] | None = None) -> bool:
    """Return whether a failure may be told in the extended form, whatever else is wrong."""
    environ = os.environ if environ is None else environ
    return environ.get(_CAPS_ENV, "").strip().lower() in {"1", "true", "yes", "on"}


def _drafts(found: ResolvedSettings) -> DraftConfig:
    tokens = found.integer("draft_tokens")
    grammar = found.text("draft_grammar")
    return DraftConfig(
        source=found.text("draft") or "auto",
        tokens=None if tokens is None or tokens < 0 else tokens,
        has_mtp=bool(found.switch("mtp")),
        grammar_tokens=found.integer("grammar_draft") or 0,
        grammar_path=None if grammar is None else Path(grammar),
        mtp_guard_percent=found.integer("mtp_guard_pct") or 0,
        mtp_guard_window=found.integer("mtp_guard_window") or 1,
    )


def _memory(found: ResolvedSettings, wish: int, state_dir: Path) -> MemoryConfig:
    cap = found.integer("cap") or None
    ram_gb, guard_gb = found.number("ram_gb"), found.number("rss_guard_gb")
    return MemoryConfig(
        ram_bytes=int(ram_gb * GB) if ram_gb else None,
        cap=cap or wish or None,
        may_raise=cap is None,
        reads=_reads(found, state_dir),
        looks_ahead=bool(found.switch("lookahead")),
        history=_history(found),
        guard_bytes=int(guard_gb * GB) if guard_gb else None,
    )


def _history(found: ResolvedSettings) -> HistoryConfig:
    path = found.text("usage")
    decay = found.number("usage_decay")
    return HistoryConfig(
        path=None if path is None else Path(path).expanduser(),
        is_saved=bool(found.switch("usage_save")),
        decay=None if decay is None or decay < 0 else decay,
        pins=bool(found.switch("autopin")),
        repin_tokens=found.integer("repin") or 0,
    )


def _reads(found: ResolvedSettings, state_dir: Path) -> ReadConfig:
    mirrors = _paths(found.text("model_mirror"))
    return ReadConfig(
        mode=found.text("read_mode") or "auto",
        depth=found.integer("read_depth"),
        direct=found.switch("direct"),
        mirrors=mirrors,
        weights=_weights(found, len(mirrors)),
        cache=state_dir / _DISKS_FILE,
    )


def _weights(found: ResolvedSettings, num_mirrors: int) -> tuple[float, ...] | None:
    text = found.text("disk_weights")
    if text is None:
        return None
    try:
        weights = tuple(float(part) for part in text.split(","))
    except ValueError:
        weights = ()
    is_usable = all(0 <= weight < math.inf for weight in weights) and any(weights)
    if is_usable and len(weights) == num_mirrors + 1:
        return weights
    source = found["disk_weights"].origin.name
    raise SettingsError(
        f"{source}: {text[:60]!r} is not one weight for the model's own disk and one for each of "
        f"{num_mirrors} mirrors",
        setting="disk_weights",
        source=source,
        hint="give numbers with commas between them, such as 1,2; or leave it out",
    )


def _context_length(found: ResolvedSettings) -> int:
    context_length = found.integer("ctx") or DEFAULT_CONTEXT
    if context_length < 3:  # one prompt token, one generated, one spare
        source = found["ctx"].origin.name
        raise SettingsError(
            f"{source}: a context of {context_length} tokens cannot hold a prompt and a reply",
            setting="ctx",
            source=source,
            hint=f"set {source} to at least 3, or to 0 for {DEFAULT_CONTEXT}",
        )
    return context_length


def _optional_path(text: str | None) -> Path | None:
    return None if text is None else Path(text).expanduser().absolute()


def _paths(text: str | None) -> tuple[Path, ...]:
    """Return the directories of a list as the system writes one: "/a:/b"."""
    parts = (part.strip() for part in (text or "").split(os.pathsep))
    return tuple(Path(part).expanduser().absolute() for part in parts if part)


def _state_dir(environ: Mapping[str, str]) -> Path:
    """Return where the system wants programs to keep state; as `colibri_cli.paths` finds it."""
    home = Path.home()
    if sys.platform == "win32":
        return Path(environ.get("LOCALAPPDATA") or home / "AppData" / "Local") / _APP
    if sys.platform == "darwin":
        return home / "Library" / "Application Support" / _APP
    given = environ.get("XDG_STATE_HOME", "").strip()
    return (Path(given) if given else home / ".local" / "state") / _APP


def _check_arguments(argv: Sequence[str]) -> None:
    if len(argv) > 1 or (argv and not (argv[0].isascii() and argv[0].isdigit())):
        raise SettingsError(
            f"cannot use the arguments {' '.join(argv)!r}",
            setting="cap",
            source="the argument list",
            hint="usage: coli-engine [EXPERT_CACHE_SLOTS]; settings are environment variables, "
            "see docs/settings.md",
        )


def _parent_pid(environ: Mapping[str, str]) -> int | None:
    """Return our parent's process id if it is the one that asked us to live with it."""
    text = environ.get(_PARENT_ENV, "")
    is_parent = text.isdigit() and hasattr(os, "getppid") and int(text) == os.getppid()
    return int(text) if is_parent else None
