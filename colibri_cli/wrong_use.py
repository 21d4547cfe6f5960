"""What a command line that Typer refuses is answered: what is wrong, and what to write instead."""

from __future__ import annotations

import re
from difflib import get_close_matches
from typing import Any, Final

from colibri_cli.errors import UsageError

_GPU_OPTIONS: Final = frozenset({"--cuda", "--gpu", "--vram"})  # of other engines of this kind
_EXTRA: Final = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.*)\)")
_NO_COMMAND: Final = re.compile(r"No such command '(.*?)'\.")


def wrong_use(error: Any, command: str) -> UsageError:  # noqa: ANN401 - Typer's own
    """Return what is told instead of Typer's own words.

    Args:
        error: What Typer raised.
        command: The command as far as it is known where the error does not tell.
    """
    context = getattr(error, "ctx", None)
    path = command if context is None else context.command_path
    see = f"see `{path} --help`"
    message = " ".join(error.format_message().split())
    inner = sorted(getattr(getattr(context, "command", None), "commands", {}))
    if not message:  # Typer wrote the help already
        return UsageError(f"`{path}` needs one of its commands: {', '.join(inner)}", hint=see)
    if getattr(error, "option_name", None) in _GPU_OPTIONS:
        hint = "experts are computed by the processor; `coli serve --engine vllm` uses GPUs"
        return UsageError(message, hint=hint)
    if found := _EXTRA.fullmatch(message):
        message = f"`{path}` does not take {found[1]!r}"
        return UsageError(message, hint=_as_model(context, path, found[1]) or see)
    if found := _NO_COMMAND.match(message):
        message = f"`{path}` has no command {found[1]!r}"
        near = get_close_matches(found[1], inner, n=1)
        meant = f"did you mean `{path} {near[0]}`?" if near else None
        meant = meant or _as_model(context, path, found[1])
        return UsageError(message, hint=meant or f"it has {', '.join(inner)}")
    parameter = getattr(error, "param", None)
    if parameter is not None and message.startswith("Missing") and parameter.help:
        name = parameter.metavar if parameter.param_type_name == "argument" else parameter.opts[0]
        return UsageError(message, hint=f"{name}: {parameter.help.rstrip('.')}; {see}")
    return UsageError(message, hint=see)


def _as_model(context: Any, path: str, word: str) -> str | None:  # noqa: ANN401
    """Return how to name a model, if the word may be one and the command takes one."""
    options = [option for each in context.command.params for option in each.opts]
    if "--model" not in options or " " in word:
        return None
    return f"a model is named with --model: `{path} --model {word}`"
