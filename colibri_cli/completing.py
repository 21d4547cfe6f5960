"""What a shell may complete an argument with; looks at small files alone, and never fails."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

SHELLS: Final = ("bash", "zsh", "fish", "powershell")  # there are scripts for


def model_names(incomplete: str) -> list[str]:
    """Return models of the store."""
    from colibri_cli.model_store.store import list_models

    return _beginning(incomplete, (model.name for model in list_models()))


def template_names(incomplete: str) -> list[str]:
    """Return templates of the user."""
    from colibri_cli.prompt_templates import template_names as names

    return _beginning(incomplete, names())


def setting_names(incomplete: str) -> list[str]:
    """Return settings, with the command before them where one was typed."""
    from colibri_protocol.settings import SETTINGS, Scope

    table, dot, beginning = incomplete.rpartition(".")
    names = (name for name, row in SETTINGS.items() if row.scope is not Scope.ENGINE)
    return [f"{table}{dot}{name}" for name in _beginning(beginning, names)]


def client_names(incomplete: str) -> list[str]:
    """Return the clients that settings are known for."""
    from colibri_cli.client_settings import RECIPES

    return _beginning(incomplete, RECIPES)


def task_names(incomplete: str) -> list[str]:
    """Return the tasks of `coli bench quality` that need no plugin: ours, public ones, files."""
    from colibri_cli.paths import cache_dir
    from colibri_cli.quality.datasets import DATASETS
    from colibri_cli.quality.tasks import SMOKE

    files = (file.stem for file in (cache_dir() / "bench").glob("*.jsonl"))
    return _beginning(incomplete, sorted({SMOKE, *DATASETS, *files}))


def phase_names(incomplete: str) -> list[str]:
    """Return the phases of `coli diag`, behind those of a list that were typed before."""
    from colibri_cli.diag.phase_names import PHASES

    before, comma, beginning = incomplete.rpartition(",")
    left = (name for name in PHASES if name not in before.split(","))
    return [f"{before}{comma}{name}" for name in _beginning(beginning, left)]


def plugin_names(incomplete: str) -> list[str]:
    """Return the plugins there are; none is loaded."""
    from colibri_cli.plugin_sources import plugin_sources

    return _beginning(incomplete, (source.name for source in plugin_sources()))


def shell_names(incomplete: str) -> list[str]:
    """Return the shells that can complete."""
    return _beginning(incomplete, SHELLS)


def profile_names(incomplete: str) -> list[str]:
    """Return the profiles of the configuration files."""
    from colibri_cli.config_layers import read_files
    from colibri_cli.settings import config_file_given
    from colibri_protocol.errors import ColibriError

    try:
        names = sorted({name for file in read_files(config_file_given()) for name in file.profiles})
    except ColibriError:
        return []
    return _beginning(incomplete, names)


def conversation_ids(incomplete: str) -> list[str]:
    """Return the latest conversations of the log."""
    from colibri_cli.chat_log.store import ChatLog
    from colibri_cli.paths import chat_log_file
    from colibri_protocol.errors import ColibriError

    path = chat_log_file()
    if not path.is_file():
        return []
    try:
        with ChatLog(path) as log:
            found = [conversation.short_id for conversation in log.conversations(20)]
    except ColibriError:
        return []
    if incomplete != incomplete.upper():
        found = [one.lower() for one in found]
    return _beginning(incomplete, found)


def server_ports(incomplete: str) -> list[str]:
    """Return the ports of servers that run."""
    from colibri_cli.servers import running_servers

    ports = (str(server.port) for server in running_servers() if server.port is not None)
    return _beginning(incomplete, ports)


def _beginning(incomplete: str, names: Iterable[str]) -> list[str]:
    return [name for name in names if name.startswith(incomplete)]
