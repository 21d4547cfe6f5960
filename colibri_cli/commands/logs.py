"""`coli logs`: the conversations that were kept: list, search, show, export, remove."""

import json
import sys
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from colibri_cli import completing
from colibri_cli.errors import UsageError
from colibri_cli.options import JsonOptions, OutputOptions, path_of, takes
from colibri_cli.paths import chat_log_file
from colibri_cli.settings import prepare
from colibri_cli.wrapping import say

if TYPE_CHECKING:
    from colibri_cli.chat_log.store import ChatLog

_SCHEMA_VERSION = 1
_FORMATS = ("md", "json", "html")

app = typer.Typer(
    name="logs",
    help="List, search, show and export the conversations that were kept.",
    no_args_is_help=True,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

_Id = Annotated[
    str,
    typer.Argument(
        metavar="ID", help="A conversation, by the beginning of its id.",
        autocompletion=completing.conversation_ids,
    ),
]  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ListOptions(JsonOptions, OutputOptions):
    """Options of `coli logs list`."""

    count: Annotated[
        int, typer.Option("-n", "--count", metavar="N", help="At most this many.", min=1)
    ] = 20
    query: Annotated[
        str | None,
        typer.Option("-q", "--query", metavar="TEXT", help="With these words.", show_default=False),
    ] = None
    model: Annotated[
        str | None,
        typer.Option("-m", "--of-model", metavar="NAME", help="Of this model.", show_default=False),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ShowOptions(JsonOptions, OutputOptions):
    """Options of `coli logs show`."""

    id: _Id


@dataclass(frozen=True, kw_only=True)
class PathOptions(OutputOptions):
    """Options of `coli logs path`."""


@dataclass(frozen=True, kw_only=True)
class StatusOptions(JsonOptions, OutputOptions):
    """Options of `coli logs status`."""


@dataclass(frozen=True, kw_only=True)
class RemoveOptions(OutputOptions):
    """Options of `coli logs rm`."""

    id: _Id


@dataclass(frozen=True, kw_only=True)
class BackupOptions(OutputOptions):
    """Options of `coli logs backup`."""

    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write; it must not exist.")]


@dataclass(frozen=True, kw_only=True)
class ExportOptions(OutputOptions):
    """Options of `coli logs export`."""

    ids: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[ID]...", help="Conversations, by the beginning of their ids; all."
        ),
    ] = None
    format: Annotated[
        str, typer.Option("--format", metavar="|".join(_FORMATS), help="How they are written.")
    ] = "md"


@dataclass(frozen=True, kw_only=True)
class VacuumOptions(OutputOptions):
    """Options of `coli logs vacuum`."""


@dataclass(frozen=True, kw_only=True)
class SwitchOptions(OutputOptions):
    """Options of `coli logs on` and `off`."""


@app.command("list")
@takes(ListOptions)
def list_command(options: ListOptions) -> None:
    """List conversations, the latest first."""
    prepare(options, "logs")
    with _log() as log:
        rows = _found(log, options)
    if options.json:
        body = {"schema_version": _SCHEMA_VERSION, "conversations": rows}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    if not rows:
        say("nothing was found" if options.query else "no conversations yet")
        return
    from colibri_cli.console import print_table
    from colibri_cli.terminal.answer_text import visible

    columns = [("id", False), ("updated", False), ("turns", True), ("model", False)]
    print_table(
        [*columns, ("found" if options.query else "title", False)],
        [
            (
                row["id"][:10],
                row["updated"][:16].replace("T", " "),
                str(row["num_turns"]),
                visible(row["model"]),
                visible(" ".join((row.get("excerpt") or row["title"]).split())),
            )
            for row in rows
        ],
    )


@app.command("show")
@takes(ShowOptions)
def show_command(options: ShowOptions) -> None:
    """Print one conversation as Markdown, or as JSON with all its figures."""
    prepare(options, "logs")
    from colibri_cli.chat_log.export import as_json, as_markdown
    from colibri_cli.terminal.answer_text import visible

    with _log() as log:
        conversation = log.find(options.id)
        turns = log.turns(conversation)
    if options.json:
        sys.stdout.write(json.dumps(json.loads(as_json(conversation, turns)), ensure_ascii=False))
        sys.stdout.write("\n")
        return
    text = as_markdown(conversation, turns)
    sys.stdout.write(visible(text) if sys.stdout.isatty() else text)


@app.command("path")
@takes(PathOptions)
def path_command(options: PathOptions) -> None:
    """Print where the log is."""
    prepare(options, "logs")
    sys.stdout.write(f"{chat_log_file()}\n")


@app.command("status")
@takes(StatusOptions)
def status_command(options: StatusOptions) -> None:
    """Tell how much the log holds."""
    prepare(options, "logs")
    path = chat_log_file()
    size, number, turns = 0, 0, 0
    if path.is_file():
        with _log() as log:
            conversations = log.conversations()
        size, number = path.stat().st_size, len(conversations)
        turns = sum(conversation.num_turns for conversation in conversations)
    body = {"path": str(path), "bytes": size, "conversations": number, "turns": turns}
    if options.json:
        sys.stdout.write(json.dumps({"schema_version": _SCHEMA_VERSION, **body}) + "\n")
        return
    from colibri_cli.console import print_facts

    print_facts([(name, str(value)) for name, value in body.items()])


@app.command("rm")
@takes(RemoveOptions)
def rm_command(options: RemoveOptions) -> None:
    """Remove one conversation."""
    prepare(options, "logs")
    with _log() as log:
        conversation = log.find(options.id)
        log.remove(conversation.id)
    if not options.quiet:
        say(f"removed {conversation.short_id}: {conversation.title}")


@app.command("backup")
@takes(BackupOptions)
def backup_command(options: BackupOptions) -> None:
    """Write a copy of the whole log to a new file."""
    prepare(options, "logs")
    target = path_of("FILE", options.file)
    if target.exists():
        raise UsageError(f"{target} exists already", hint="name a new file")
    with _log() as log:
        log.backup(target)


@app.command("export")
@takes(ExportOptions)
def export_command(options: ExportOptions) -> None:
    """Print conversations as Markdown, JSON or HTML, the oldest first."""
    prepare(options, "logs")
    if options.format not in _FORMATS:
        raise UsageError(
            f"--format: {options.format!r} is none of {', '.join(_FORMATS)}", hint="see --help"
        )
    from colibri_cli.chat_log.export import as_json, as_markdown
    from colibri_cli.terminal.html_page import as_html

    with _log() as log:
        wanted = [log.find(part) for part in options.ids or ()] or log.conversations()[::-1]
        found = [(conversation, log.turns(conversation)) for conversation in wanted]
    if options.format == "json":
        documents = [json.loads(as_json(*one)) for one in found]
        body = {"schema_version": _SCHEMA_VERSION, "conversations": documents}
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    texts = [as_markdown(*one) for one in found]
    sys.stdout.write(as_html(texts) if options.format == "html" else "\n".join(texts))


@app.command("vacuum")
@takes(VacuumOptions)
def vacuum_command(options: VacuumOptions) -> None:
    """Give the room of removed conversations back to the disk."""
    prepare(options, "logs")
    path = chat_log_file()
    if not path.is_file():
        say("no conversations yet")
        return
    before = path.stat().st_size
    with _log() as log:
        log.vacuum()
    if not options.quiet:
        say(f"{before:,} bytes before, {path.stat().st_size:,} now")


@app.command("on")
@takes(SwitchOptions)
def on_command(options: SwitchOptions) -> None:
    """Keep conversations from now on."""
    _switch(options, is_kept=True)


@app.command("off")
@takes(SwitchOptions)
def off_command(options: SwitchOptions) -> None:
    """Keep no conversations from now on; those that were kept stay."""
    _switch(options, is_kept=False)


def _switch(options: SwitchOptions, *, is_kept: bool) -> None:
    """Write the wish into the user's configuration file, and say if something else overrules it.

    Raises:
        UsageError: a variable or another file says the opposite.
    """
    prepare(options, "logs")
    from colibri_cli.config_file import set_key, unset_key, user_config_file
    from colibri_cli.settings import effective_settings

    file = user_config_file()
    if is_kept:
        unset_key(file, "default", "no_log")
    else:
        set_key(file, "default", "no_log", True)
    setting = effective_settings(None, "chat")["no_log"]
    if bool(setting.value) is is_kept:
        raise UsageError(
            f"{file} is changed, but {setting.origin.name} says the opposite and counts more",
            hint="`coli config show --origin` tells where each setting comes from",
        )
    if not options.quiet:
        kept = "are kept" if is_kept else "are not kept any more"
        say(f"conversations {kept}")


def _log() -> "ChatLog":
    from colibri_cli.chat_log.store import ChatLog

    return ChatLog(chat_log_file())


def _found(log: "ChatLog", options: ListOptions) -> list[dict[str, Any]]:
    if options.query is not None:
        hits = log.search(options.query, options.count)
        rows = [{**asdict(hit.conversation), "excerpt": hit.excerpt} for hit in hits]
    else:
        rows = [asdict(conversation) for conversation in log.conversations()]
    kept = [row for row in rows if options.model in {None, row["model"]}]
    return kept[: options.count]
