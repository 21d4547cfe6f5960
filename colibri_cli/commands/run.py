"""`coli run`: one prompt, one answer; standard output carries nothing but the answer."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from colibri_cli import completing
from colibri_cli.errors import ModelNotGiven, UsageError
from colibri_cli.one_shot.asking import Question, ask
from colibri_cli.one_shot.output import Form, Printer
from colibri_cli.one_shot.prompt import is_terminal, read_prompt
from colibri_cli.options import (
    ConversationOptions,
    EngineOptions,
    JsonOptions,
    OutputOptions,
    SamplingOptions,
    takes,
)
from colibri_cli.sampling import RUN_MAX_TOKENS, generation_of
from colibri_cli.settings import is_dumb_terminal, prepare
from colibri_protocol.settings import ResolvedSettings

if TYPE_CHECKING:
    from colibri_cli.chat_log.records import LoggedConversation, LoggedTurn


@dataclass(frozen=True, kw_only=True)
class RunOptions(ConversationOptions, SamplingOptions, EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli run`."""

    prompt: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROMPT]...", help="The prompt; `-` or nothing reads standard input."
        ),
    ] = None
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            "-t",
            metavar="NAME",
            help="Fill a prompt template (`coli templates`) with the prompt.",
            show_default=False,
            autocompletion=completing.template_names,
        ),
    ] = None
    param: Annotated[
        list[str] | None,
        typer.Option(
            "--param",
            "-p",
            metavar="NAME=TEXT",
            help="A word for a place of the template; repeat for several.",
            show_default=False,
        ),
    ] = None
    file: Annotated[
        list[str] | None,
        typer.Option(
            "--file",
            "-f",
            metavar="FILE|URL",
            show_default=False,
            help="Text that goes along under its name; `-` is standard input. Repeat for several.",
        ),
    ] = None
    allow_net: Annotated[
        bool, typer.Option("--allow-net", help="Let --file fetch from a URL.", metavar="")
    ] = False
    stdin_last: Annotated[
        bool,
        typer.Option(
            "--stdin-last/--stdin-first",
            metavar="",
            help="Where standard input goes if there are words too. Default: first.",
            show_default=False,
        ),
    ] = False
    schema: Annotated[
        str | None,
        typer.Option(
            "--schema",
            metavar="FILE|JSON",
            help="The answer is JSON of this JSON schema.",
            show_default=False,
        ),
    ] = None
    grammar: Annotated[
        str | None,
        typer.Option(
            "--grammar",
            metavar="FILE",
            help="The answer follows this grammar (GBNF).",
            show_default=False,
        ),
    ] = None
    extract: Annotated[
        bool,
        typer.Option("--extract", "-x", help="Print only the first block of code.", metavar=""),
    ] = False
    extract_last: Annotated[
        bool, typer.Option("--extract-last", help="Print only the last block of code.", metavar="")
    ] = False
    jsonl: Annotated[
        bool,
        typer.Option(
            "--jsonl",
            metavar="",
            help="Print a line of JSON per piece of the answer, and a last one with everything.",
        ),
    ] = False
    raw: Annotated[
        bool | None,
        typer.Option(
            "--raw/--markdown",
            help="The answer as the text it is, or as its Markdown reads. Variable: COLI_RAW."
            " Default: Markdown on a terminal.",
            metavar="",
            show_default=False,
        ),
    ] = None
    hide_think: Annotated[
        bool, typer.Option("--hide-think", help="Do not show reasoning.", metavar="")
    ] = False
    cid: Annotated[
        str | None,
        typer.Option(
            "--cid",
            "--resume",
            metavar="ID",
            help="Go on with this conversation of the log.",
            show_default=False,
            autocompletion=completing.conversation_ids,
        ),
    ] = None
    keeps: Annotated[
        bool | None,
        typer.Option(
            "--log/--no-log",
            " /-n",
            metavar="",
            show_default=False,
            help="Keep prompt and answer in the log. Variable: COLI_NO_LOG. Default: yes.",
        ),
    ] = None
    dry_run: Annotated[
        bool,
        typer.Option(
            "--dry-run", metavar="", help="Show what would be asked and how; nothing is loaded."
        ),
    ] = False
    stats: Annotated[
        bool | None,
        typer.Option(
            "--stats/--no-stats",
            help="Statistics on standard error. Default: on a terminal.",
            metavar="",
            show_default=False,
        ),
    ] = None
    no_template: Annotated[
        bool,
        typer.Option(
            "--no-template", help="Continue the prompt as plain text, without roles.", metavar=""
        ),
    ] = False


@takes(RunOptions)
def command(options: RunOptions) -> None:
    """Answer one prompt and exit."""
    settings = prepare(options, "run")
    _check(options)
    generation = generation_of(settings, max_tokens=RUN_MAX_TOKENS, stops=options.stop or ())
    if options.schema is not None or options.grammar is not None:
        from colibri_cli.one_shot.constraint import constrained

        generation = constrained(generation, options.schema, options.grammar)
    resumed = _resumed(options)
    prompt = read_prompt(
        options.prompt or [],
        template=options.template,
        params=options.param or (),
        files=options.file or (),
        allows_net=options.allow_net,
        is_input_last=options.stdin_last,
    )
    if prompt.system is not None and options.no_template:
        raise UsageError(
            f"the template {options.template} has a system text, which needs the chat template",
            hint="leave out --no-template",
        )
    question = Question(
        settings=settings,
        generation=generation,
        prompt=prompt,
        system=options.system,
        resumed=resumed,
        is_plain=options.no_template,
        log_file=_log_file(options, settings),
        server=options.attach,
        own_engine=options.no_attach,
        is_quiet=options.quiet,
    )
    try:
        if options.dry_run:
            _show_preview(options, question)
            return
        from colibri_cli.runtime import run_async

        run_async(ask(question, Printer(_form(options, settings))))
    except ModelNotGiven as error:
        error.hint = _meant_as_model(options.prompt or []) or error.hint
        raise


def _meant_as_model(words: list[str]) -> str | None:
    """Return what to write where the first word is a model's name, as other programs take it."""
    from colibri_cli.model_store.store import find_entry

    name, *prompt = words or [""]
    if not name or find_entry(name) is None:
        return None
    if not prompt:
        return f"{name} is a model: `coli chat --model {name}` talks to it"
    return f"{name} is a model: write `coli run --model {name} PROMPT`"


def _form(options: RunOptions, settings: ResolvedSettings) -> Form:
    return Form(
        is_json=options.json,
        is_jsonl=options.jsonl,
        block=0 if options.extract else -1 if options.extract_last else None,
        shows_reasoning=settings.switch("show_think") is not False and not options.hide_think,
        shows_stats=options.stats,
        is_quiet=options.quiet,
        is_markdown=_is_markdown(options, settings),
    )


def _is_markdown(options: RunOptions, settings: ResolvedSettings) -> bool:
    """Whether the answer is shown as its Markdown reads: where asked for, and on a terminal."""
    if options.raw is not None:
        return not options.raw
    is_plain = settings.switch("raw") is True or is_dumb_terminal()
    return is_terminal(sys.stdout) and not is_plain


def _log_file(options: RunOptions, settings: ResolvedSettings) -> Path | None:
    from colibri_cli.paths import chat_log_file

    is_kept = not settings.switch("no_log") if options.keeps is None else options.keeps
    return chat_log_file() if is_kept else None


def _check(options: RunOptions) -> None:
    """Refuse options that contradict each other."""
    needs_template = {
        "--system": options.system is not None,
        "--think": bool(options.think),
        "--continue": options.continue_last,
        "--cid": options.cid is not None,
        "--file": bool(options.file),
    }
    if options.no_template and any(needs_template.values()):
        named = " and ".join(name for name, is_given in needs_template.items() if is_given)
        raise UsageError(f"{named} need the chat template", hint="leave out --no-template")
    for first, second in (
        (("--attach", options.attach is not None), ("--no-attach", options.no_attach)),
        (("--continue", options.continue_last), ("--cid", options.cid is not None)),
        (("--schema", options.schema is not None), ("--grammar", options.grammar is not None)),
        (("--json", options.json), ("--jsonl", options.jsonl)),
        (("--markdown", options.raw is False), ("--json", options.json)),
        (("--markdown", options.raw is False), ("--jsonl", options.jsonl)),
        (("--markdown", options.raw is False), ("--extract", options.extract)),
        (("--markdown", options.raw is False), ("--extract-last", options.extract_last)),
        (("--extract", options.extract), ("--extract-last", options.extract_last)),
        (("--extract", options.extract or options.extract_last), ("--json", options.json)),
        (("--extract", options.extract or options.extract_last), ("--jsonl", options.jsonl)),
    ):
        if first[1] and second[1]:
            raise UsageError(f"{first[0]} and {second[0]} contradict each other")


def _resumed(
    options: RunOptions,
) -> "tuple[LoggedConversation, list[LoggedTurn]] | None":
    """Return the conversation to go on with, if one was asked for; before a model is loaded."""
    if not options.continue_last and options.cid is None:
        return None
    from colibri_cli.chat.starting import find_conversation
    from colibri_cli.paths import chat_log_file

    return find_conversation(chat_log_file(), options.cid)


def _show_preview(options: RunOptions, question: Question) -> None:
    """Print what would be asked."""
    from colibri_cli.one_shot.preview import lines_of, preview
    from colibri_cli.terminal.answer_text import visible

    body = preview(question)
    if options.json:
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    text = "\n".join(lines_of(body)) + "\n"
    sys.stdout.write(visible(text) if is_terminal(sys.stdout) else text)
