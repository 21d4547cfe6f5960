"""What `coli --help` prints: all commands in groups, then the few options that matter everywhere.

Written from a table, so that no command is imported to say what it does; a test holds the table to
what the commands say themselves. Commands of plugins are remembered between runs: loading plugins
only to list them would take most of the time of the page.
"""

from __future__ import annotations

import shutil
import textwrap
from typing import Final

from colibri_cli import __version__

GROUPS: Final[dict[str, dict[str, str]]] = {
    "Talk to a model": {
        "chat": "Talk to a model; without --model, to the small demo model.",
        "run": "Answer one prompt and exit.",
        "logs": "List, search, show and export the conversations that were kept.",
        "templates": "List, show, set and remove prompt templates for `coli run -t`.",
    },
    "Serve it": {
        "serve": "Serve a model over the OpenAI and Anthropic APIs.",
        "web": "Serve a model and open the dashboard in a browser.",
        "ps": "List running servers: process, address, model, state, slots.",
        "top": "Watch a running server: requests, experts, where the time goes.",
        "stop": "End a running server and its engine.",
        "client-config": "Print the settings that point a client at a running server.",
    },
    "Models": {
        "pull": "Fetch a model: demo, smollm2, or hf:ORG/NAME.",
        "list": "List the models there are.",
        "show": "Show what a model holds: files, chat template, licence.",
        "add": "Give a model directory on any drive a name.",
        "rm": "Remove a model, or forget one that was added.",
        "convert": "Convert a model into a container: one read per expert.",
    },
    "Speed and health": {
        "info": "Tell what a model is and what runs it; nothing is loaded.",
        "plan": "Show where weights would go here, and how fast it would be.",
        "tune": "Measure which settings are fastest here; answers never change.",
        "bench": "Measure speed by context and batch; compare two reports.",
        "diag": "Check a model and its engine, and find what got worse.",
        "doctor": "Check a model, this machine and this installation.",
        "report": "Pack what a bug report needs into one archive, without secrets.",
        "build": "Show the kernels there are, test them, or build them anew.",
    },
    "Setup": {
        "config": "Show settings with their origin, and change the file.",
        "plugins": "List, enable and disable plugins, or begin a new one.",
        "completion": "Print the completion script of a shell.",
    },
}
_OPTIONS: Final = {
    "--model NAME": "Model to use: a pulled name, a directory, or a GGUF file.",
    "--json": "Print one JSON document on standard output.",
    "-q, -v, -vv": "Say less or more on standard error; --no-color for no colour.",
    "-h, --help": "Show all options of a command: `coli COMMAND --help`.",
    "--version": "Print name and version.",
}
_MAX_WIDTH: Final = 100
_MIN_WIDTH: Final = 40
_COLUMN: Final = 16  # where the meanings begin
# Titles (bold) and names: those of the theme on a dark background and on a light one.
_STYLES: Final = {False: ("1;38;5;37", "38;5;80"), True: ("1;38;5;30", "38;5;24")}


def page() -> str:
    """Return the page for this terminal, with the commands of plugins."""
    from colibri_cli.help_cache import plugin_summaries
    from colibri_cli.settings import is_light_terminal, shows_color
    from colibri_cli.wrapping import say
    from colibri_protocol.errors import ColibriError

    plugins: dict[str, str] = {}
    try:
        plugins = plugin_summaries()
    except ColibriError as error:  # help is wanted most when something is broken
        say(f"coli: {error.message}; commands of plugins are left out")
    return render(
        plugins,
        width=shutil.get_terminal_size().columns,
        has_color=shows_color(),
        is_light=is_light_terminal(),
    )


def render(plugins: dict[str, str], *, width: int, has_color: bool, is_light: bool = False) -> str:
    """Return the page.

    Args:
        plugins: Commands of plugins and what they do.
        width: Columns there are.
        has_color: Colours may be used.
        is_light: They are for a light background.
    """
    title_style, name_style = _STYLES[is_light]

    def styled(text: str, style: str) -> str:
        return f"\x1b[{style}m{text}\x1b[0m" if has_color and style else text

    width = max(_MIN_WIDTH, min(width, _MAX_WIDTH))
    groups = {**GROUPS, "From plugins": plugins} if plugins else GROUPS
    head = f"coli {__version__}: run mixture-of-experts models larger than memory."
    lines = [
        *textwrap.wrap(head, width),
        "",
        f"Usage: {styled('coli COMMAND [OPTIONS]', name_style)}",
    ]
    for title, rows in {**groups, "Options": _OPTIONS}.items():
        lines += ["", styled(title, title_style)]
        for name, meaning in rows.items():
            first, *more = textwrap.wrap(meaning, width - _COLUMN) or [""]
            padding = " " * max(1, _COLUMN - 2 - len(name))
            lines.append(f"  {styled(name, name_style)}{padding}{first}")
            lines += [" " * _COLUMN + line for line in more]
    return "\n".join(lines) + "\n"
