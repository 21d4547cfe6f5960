"""The configuration of one engine process, read once from argument list and environment.

The only reader of the environment in this package. A leaf: names and ranges of the settings stand
in `colibri_protocol.settings`, effects where each value is used.
"""

from __future__ import annotations

import math
import os
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_engine.engine_config import (
    DraftConfig,
    EngineConfig,
    Extensions,
    HistoryConfig,
    MemoryConfig,
    ReadConfig,
)
from colibri_engine.errors import NoModel, SettingsError
from colibri_protocol.foreign_variables import foreign_variables
from colibri_protocol.settings import SETTINGS, Scope, resolve, unknown_variables

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


def read_isa(environ: Mapping[str, str] | None = None) -> str | None:
    """Read which kernels are wanted, for work without a model; None: the best.

    Args:
        environ: The environment; None: this process's own.

    Raises:
        SettingsError: there is no such instruction set.
    """
    environ = os.environ if environ is None else environ
    wanted = {name: environ.get(name, "") for name in SETTINGS["isa"].env}
    return resolve({}, wanted, {}, scope=Scope.ENGINE).text("isa")


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
    """Return the directories of a list as the system writes one, "/a:/b", or with ; or , between.

    A directory may have those two in its name.
    """
    named = [part.strip() for part in (text or "").split(os.pathsep)]
    parts = [
        part.strip()
        for name in named
        for part in ([name] if Path(name).is_dir() else re.split("[;,]", name))
    ]
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
