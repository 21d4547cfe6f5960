"""Greeting whoever begins a chat or a server on a terminal: when, and what is said of the model.

Of a model only its `config.json` and the sizes of its files are looked at; nothing can go wrong
here that would not be said by the command itself, so whatever cannot be read is left out.
"""

from __future__ import annotations

import json
import shutil
import sys
from typing import TYPE_CHECKING, Any, Final

from colibri_cli import __version__
from colibri_cli.settings import is_dumb_terminal, is_light_terminal, shows_color
from colibri_protocol.errors import ColibriError

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_cli.options import OutputOptions
    from colibri_protocol.settings import ResolvedSettings

_TAGLINE: Final = "mixture models larger than memory"
_NOTES: Final = {
    "chat": "chat · Enter sends, Ctrl-D leaves",
    "serve": "serve · OpenAI and Anthropic APIs, one model",
    "web": "web · the APIs, and the dashboard in a browser",
}
_NO_MODEL: Final = {
    "chat": "a server that runs here, else the demo model",
    "": "no model is set: --model NAME, or COLI_MODEL",
}
_FAMILIES: Final = {
    "glm": "GLM", "inkling": "Inkling", "kimi": "Kimi", "olmoe": "OLMoE", "deepseek": "DeepSeek",
    "qwen3": "Qwen3", "gpt_oss": "gpt-oss",
}  # fmt: skip
_EXPERTS: Final = ("n_routed_experts", "num_experts", "num_local_experts")
_WEIGHTS: Final = (".safetensors", ".gguf", ".coli")
_CONFIG_LIMIT: Final = 1 << 20


def greet(
    options: OutputOptions,
    settings: ResolvedSettings,
    command: str = "",
    server: str | None = None,
) -> bool:
    """Show the banner on standard error, if that is a terminal and it is wanted.

    Args:
        options: Those of the command.
        settings: Its effective settings.
        command: Its name; "" for `coli` alone.
        server: Address of the server it asks, where that was named.

    Returns:
        Whether it was shown.
    """
    stream = sys.stderr
    if options.quiet or settings.switch("banner") is False or is_dumb_terminal():
        return False
    if stream is None or not stream.isatty():
        return False
    from colibri_cli.terminal.banner import render

    stream.write(
        render(
            [
                f"coli {__version__}",
                _TAGLINE,
                _model_line(settings, command) if server is None else _server_line(server),
                _NOTES.get(command, ""),
            ],
            width=shutil.get_terminal_size().columns,
            has_color=shows_color(stream),
            is_light=is_light_terminal(),
            has_blocks=_has_blocks(stream.encoding),
        )
    )
    stream.flush()
    return True


def _has_blocks(encoding: str | None) -> bool:
    try:
        "▀▄█".encode(encoding or "ascii")
    except (UnicodeError, LookupError):
        return False
    return True


def _server_line(server: str) -> str:
    from colibri_cli.terminal.answer_text import visible

    return visible(f"the server at {server}")


def _model_line(settings: ResolvedSettings, command: str) -> str:
    from colibri_cli.terminal.answer_text import visible

    upstream, wanted = settings.text("upstream"), settings.text("model")
    if command in {"serve", "web"} and upstream is not None:
        return visible(f"{wanted or 'what is served'} behind {upstream}")
    if wanted is None:
        return _NO_MODEL.get(command, "")
    from colibri_cli.model_store.store import locate_model

    try:
        path, name = locate_model(wanted)
        return visible(model_line(path, name))
    except (ColibriError, OSError):
        return ""  # the command says what is wrong with it


def model_line(path: Path, name: str) -> str:
    """Return family, scale and size of a model, or the name of one without `config.json`.

    Args:
        path: Directory or file.
        name: What it is called.

    Raises:
        OSError: it cannot be looked at.
    """
    if not path.is_dir():
        return f"{name} · {disk_size(path.stat().st_size)}"
    shards = [file for file in path.iterdir() if file.suffix in _WEIGHTS and file.is_file()]
    num_bytes = sum(file.stat().st_size for file in shards)
    sizes = [disk_size(num_bytes)] if num_bytes else []
    return " · ".join([*(_family(_config(path)) or [name]), *sizes])


def _family(config: dict[str, Any]) -> list[str]:
    """Return the family and its layers x experts; nothing if the configuration names none."""
    model_type = config.get("model_type")
    if not isinstance(model_type, str) or not model_type:
        return []
    known = next((name for part, name in _FAMILIES.items() if part in model_type.lower()), None)
    inner = config.get("text_config")
    keys = {**config, **inner} if isinstance(inner, dict) else config
    layers = keys.get("num_hidden_layers")
    experts = next((keys[key] for key in _EXPERTS if keys.get(key)), None)
    if not isinstance(layers, int):
        return [known or model_type]
    if not isinstance(experts, int):
        return [known or model_type, f"{layers} layers"]
    return [known or model_type, f"{layers}x{experts} MoE"]


def _config(path: Path) -> dict[str, Any]:
    try:
        with (path / "config.json").open("rb") as file:
            config = json.loads(file.read(_CONFIG_LIMIT))
    except (OSError, ValueError):
        return {}
    return config if isinstance(config, dict) else {}


def disk_size(num_bytes: int) -> str:
    """Return bytes as GB, with a decimal below ten; below one as MB."""
    if num_bytes < 1e9:
        return f"{num_bytes / 1e6:.0f} MB" if num_bytes >= 1e6 else f"{num_bytes / 1e6:.1f} MB"
    return f"{num_bytes / 1e9:.1f} GB" if num_bytes < 1e10 else f"{num_bytes / 1e9:.0f} GB"
