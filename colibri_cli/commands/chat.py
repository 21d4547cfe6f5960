"""`coli chat`: talk to a model in the terminal, on a running server or on an engine of its own."""

import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from colibri_cli import __version__, completing
from colibri_cli.backends.base import Backend, Generation, ModelCard
from colibri_cli.errors import UsageError
from colibri_cli.greeting import greet
from colibri_cli.options import (
    ConversationOptions,
    EngineOptions,
    OutputOptions,
    SamplingOptions,
    help_of,
    takes,
)
from colibri_cli.sampling import CHAT_MAX_TOKENS, generation_of, thinking_of
from colibri_cli.settings import is_dumb_terminal, prepare
from colibri_cli.terminal.answer_text import visible
from colibri_cli.wrapping import say, teller
from colibri_protocol.settings import SETTINGS, ResolvedSettings

if TYPE_CHECKING:
    from colibri_cli.chat.starting import ChatStart, Resumed

_DEFAULT_MODEL = "demo"
_PROMPT_STANDS_S = 0.5


@dataclass(frozen=True, kw_only=True)
class ChatOptions(ConversationOptions, SamplingOptions, EngineOptions, OutputOptions):
    """Options of `coli chat`."""

    tool: Annotated[
        list[str] | None,
        typer.Option(
            "--tool",
            metavar="NAME",
            help="Let the model call this tool of a plugin, `all` for all; you are asked each time."
            " Repeat for several.",
            show_default=False,
        ),
    ] = None
    plain: Annotated[
        bool,
        typer.Option("--plain", help="Plain lines in and out, also on a terminal.", metavar=""),
    ] = False
    raw: Annotated[
        bool | None,
        typer.Option("--raw", help=help_of(SETTINGS["raw"]), metavar="", show_default=False),
    ] = None
    no_history: Annotated[
        bool, typer.Option("--no-history", help="Keep no history of what is typed.", metavar="")
    ] = False
    no_log: Annotated[
        bool | None,
        typer.Option("--no-log", help=help_of(SETTINGS["no_log"]), metavar="", show_default=False),
    ] = None
    resume: Annotated[
        str | None,
        typer.Option(
            "--resume",
            metavar="ID",
            help="Go on with this conversation of the log.",
            show_default=False,
            autocompletion=completing.conversation_ids,
        ),
    ] = None
    search: Annotated[
        str | None,
        typer.Option(
            "--search",
            metavar="WORDS",
            help="Only list what the log has with these words.",
            show_default=False,
        ),
    ] = None


@takes(ChatOptions)
def command(options: ChatOptions) -> None:
    """Talk to a model; without --model, to the small demo model."""
    settings = prepare(options, "chat")
    generation = generation_of(settings, max_tokens=CHAT_MAX_TOKENS, stops=options.stop or ())
    if options.attach is not None and options.no_attach:
        raise UsageError("--attach and --no-attach contradict each other")
    if options.continue_last and options.resume is not None:
        raise UsageError("--continue and --resume contradict each other")
    if options.search is not None:
        _search(options.search)
        return
    from colibri_cli.runtime import run_async

    start = _start_of(options, settings, generation)
    has_banner = start.is_terminal and greet(options, settings, "chat", options.attach)
    title = "" if has_banner else f"coli {__version__} · "  # said once
    exit_code = None
    if not options.no_attach:
        exit_code = run_async(_chat_on_server(options, settings, start, title))
    if exit_code is None:
        model = settings.text("model") or _fetch_default()
        exit_code = run_async(_chat_on_engine(options, settings, start, title, model))
    if exit_code:
        raise typer.Exit(exit_code)


def _fetch_default() -> str:
    """Return the path of the model to start with, fetched and built on first use."""
    from colibri_cli.model_store.pulling import PullRequest, pull_model

    return str(pull_model(PullRequest(_DEFAULT_MODEL), lambda _: None).path)


async def _chat_on_server(
    options: ChatOptions, settings: ResolvedSettings, start: "ChatStart", title: str
) -> int | None:
    """Talk on a running server and return the exit code; None if there is none to talk on."""
    from colibri_cli.backends.attaching import attached_backend, with_servers_limit
    from colibri_cli.chat.starting import talk

    server = await attached_backend(settings, options.attach, teller(is_quiet=options.quiet))
    if server is None:
        return None
    try:
        card = (await server.models())[0]
        if not options.quiet:
            say(title + _attached_text(server.url, card))
        thinking = thinking_of(settings, card)
        start = replace(start, generation=with_servers_limit(settings, server, start.generation))
        if start.is_terminal:
            _import_while_typing()
        return await talk(start, server, thinking=thinking, endpoint=server.url)
    finally:
        await server.close()


def _import_while_typing() -> None:
    """Import what the first message needs once the prompt stands, and not before it."""
    import asyncio

    loop = asyncio.get_running_loop()
    module = "colibri_cli.backends.upstreams.answer"
    loop.call_later(_PROMPT_STANDS_S, lambda: loop.run_in_executor(None, import_module, module))


async def _chat_on_engine(
    options: ChatOptions,
    settings: ResolvedSettings,
    start: "ChatStart",
    title: str,
    model: str,
) -> int:
    from colibri_cli.backends.opening import native_backend
    from colibri_cli.chat.line_input import typing_ahead
    from colibri_cli.chat.starting import talk
    from colibri_cli.chat_formats.registry import no_chat_template
    from colibri_cli.console import spinner

    backend = native_backend(settings, model=model, restarts=True)
    closing = ExitStack()
    try:
        if _is_terminal(options):
            closing.enter_context(typing_ahead())
        began = time.monotonic()
        with spinner(f"loading {backend.model_id}"):
            await backend.open()
        card = (await backend.models())[0]
        if not card.has_chat_format:
            raise no_chat_template()
        if not options.quiet:
            say(title + _ready_text(backend, card, time.monotonic() - began))
        return await talk(start, backend, thinking=thinking_of(settings, card))
    finally:
        closing.close()
        await backend.close()


def _search(words: str) -> None:
    """Print what the log has, the latest first."""
    from colibri_cli.chat_log.listing import hit_lines
    from colibri_cli.chat_log.store import ChatLog
    from colibri_cli.paths import chat_log_file

    path = chat_log_file()
    hits = []
    if path.exists():
        with ChatLog(path) as log:
            hits = log.search(words)
    for hit in hits:
        sys.stdout.write("\n".join(visible(line) for line in hit_lines(hit)) + "\n")
    if not hits:
        say(f"nothing in the log has {words!r}")


def _resumed(options: ChatOptions) -> "Resumed":
    """Return the conversation to go on with, if one was asked for; before a model is loaded."""
    if not options.continue_last and options.resume is None:
        return None
    from colibri_cli.chat.starting import find_conversation
    from colibri_cli.paths import chat_log_file

    return find_conversation(chat_log_file(), options.resume)


def _start_of(
    options: ChatOptions, settings: ResolvedSettings, generation: Generation
) -> "ChatStart":
    from colibri_cli.chat.starting import ChatStart
    from colibri_cli.paths import chat_history_file, chat_log_file

    return ChatStart(
        generation=generation,
        system=options.system,
        resumed=_resumed(options),
        log_file=None if settings.switch("no_log") else chat_log_file(),
        history_file=None if options.no_history else chat_history_file(),
        api_key=settings.text("api_key"),
        settings=settings,
        is_terminal=_is_terminal(options),
        is_quiet=options.quiet,
        is_markdown=settings.switch("raw") is not True,
        shows_reasoning=settings.switch("show_think") is not False,
        tools=tuple(options.tool or ()),
    )


def _is_terminal(options: ChatOptions) -> bool:
    if options.plain or is_dumb_terminal() or sys.stdin is None:
        return False
    return sys.stdin.isatty() and sys.stdout.isatty()


def _attached_text(url: str, card: ModelCard) -> str:
    """Return what is said once a server was found: which, what it serves, how to leave."""
    context = f" · context {card.context_length}" if card.context_length is not None else ""
    title = f"{card.id} on the server at {url}{context}"
    return f"{title}\n/help lists commands; the server keeps running"


def _ready_text(backend: Backend, card: ModelCard, seconds: float) -> str:
    """Return what is said once the model is loaded: what it is, how it runs, how to leave."""
    kind = card.family
    if card.num_experts:
        kind += f", {card.num_experts} experts"
        if per_token := card.details.get("num_experts_per_token"):
            kind += f", {per_token} per token"
    sizes = [f"ready in {seconds:.1f} s"]
    if card.context_length is not None:
        sizes.append(f"context {card.context_length}")
    if card.resident_bytes is not None:
        sizes.append(f"resident {card.resident_bytes / 1e9:.2f} GB")
    sizes.append(f"RSS {backend.telemetry().rss_gb:.2f} GB")
    ways = [
        f"{name} {value}"
        for key, name in (("numerics", "numerics"), ("isa", "kernels"), ("num_threads", "threads"))
        if (value := card.details.get(key))
    ]
    title = f"{card.id} ({kind})"
    return "\n".join([title, " · ".join(sizes), " · ".join([*ways, "/help lists commands"])])
