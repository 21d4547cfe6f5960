"""`coli run`: one prompt, one answer; standard output carries nothing but the answer."""

import json
import sys
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Annotated, Any

import typer

from colibri_cli.backends.base import AnswerEvent, Completed, Generation, ReasoningDelta, TextDelta
from colibri_cli.chat_formats.base import ChatMessage, Conversation
from colibri_cli.errors import UsageError
from colibri_cli.options import (
    EngineOptions,
    JsonOptions,
    OutputOptions,
    SamplingOptions,
    takes,
)
from colibri_cli.sampling import RUN_MAX_TOKENS, generation_of, thinking_of
from colibri_cli.settings import prepare
from colibri_cli.terminal.answer_text import cut_notice, statistics_line, visible
from colibri_protocol.settings import ResolvedSettings

_SCHEMA_VERSION = 1
_PATIENCE_S = 3.0
_WAITING = "waiting for standard input to end (`</dev/null` leaves it out)\n"


@dataclass(frozen=True, kw_only=True)
class RunOptions(SamplingOptions, EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli run`."""

    prompt: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[PROMPT]...", help="The prompt; `-` or nothing reads standard input."
        ),
    ] = None
    system: Annotated[
        str | None,
        typer.Option("--system", "-s", metavar="TEXT", help="System text.", show_default=False),
    ] = None
    template: Annotated[
        str | None,
        typer.Option(
            "--template",
            "-t",
            metavar="NAME",
            help="Fill a prompt template (`coli templates`) with the prompt.",
            show_default=False,
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
    stop: Annotated[
        list[str] | None,
        typer.Option("--stop", metavar="TEXT", help="End the answer before this text; up to 4."),
    ] = None
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
    generation = generation_of(settings, max_tokens=RUN_MAX_TOKENS, stops=options.stop or ())
    if options.no_template and (options.system is not None or options.think):
        raise UsageError(
            "--system and --think need the chat template", hint="leave out --no-template"
        )
    options, prompt = _filled(options)
    from colibri_cli.runtime import run_async

    run_async(_answer(options, settings, generation, prompt))


def _filled(options: RunOptions) -> tuple[RunOptions, str]:
    """Return the options and the prompt, of a template where one is named."""
    if options.template is None:
        if options.param:
            raise UsageError("--param needs a template", hint="name one with --template")
        return options, _read_prompt(options.prompt or [])
    from colibri_cli.prompt_templates import INPUT, load_template, pairs

    template = load_template(options.template)
    given = pairs("--param", options.param or [])
    needs_input = INPUT in template.places or bool(options.prompt)
    typed = _read_prompt(options.prompt or []) if needs_input else ""
    prompt, system = template.fill(typed, given)
    if system is not None and options.no_template:
        raise UsageError(
            f"the template {template.name} has a system text, which needs the chat template",
            hint="leave out --no-template",
        )
    return replace(options, system=options.system or system), prompt


async def _answer(
    options: RunOptions, settings: ResolvedSettings, generation: Generation, prompt: str
) -> None:
    from colibri_cli.backends.opening import native_backend

    # One answer has no next turn, and saving it would take the place of a conversation that has.
    extra = {} if settings.is_given("kv_save") else {"kv_save": 0}
    backend = native_backend(settings, extra=extra)
    printer = _Printer(options, shows_reasoning=settings.switch("show_think") is not False)
    try:
        with _waiting(options):
            await backend.open()
        card = (await backend.models())[0]
        if options.no_template:
            answer = await backend.complete(prompt, generation)
        else:
            conversation = _conversation(options, thinking_of(settings, card), prompt)
            answer = await backend.chat(conversation, generation)
        async with answer:
            async for event in answer:
                printer.take(event)
        printer.finish(card.id, card.context_length)
    finally:
        printer.end_line()
        await backend.close()


def _waiting(options: RunOptions) -> AbstractContextManager[object]:
    """Show on a terminal that the model is being loaded."""
    if options.quiet or not _is_terminal(sys.stderr):
        return nullcontext()
    from colibri_cli.console import spinner

    return spinner("loading the model")


def _conversation(options: RunOptions, thinking: bool | None, prompt: str) -> Conversation:
    messages = [ChatMessage("user", prompt)]
    if options.system is not None:
        messages.insert(0, ChatMessage("system", options.system))
    return Conversation(tuple(messages), thinking=thinking)


def _read_prompt(words: list[str]) -> str:
    """Return the prompt: words, standard input, or standard input above the words."""
    typed = "" if words == ["-"] else " ".join(words)
    piped = ""
    if words == ["-"] or not _is_terminal(sys.stdin):
        piped = _read_input()
    prompt = f"{piped.rstrip()}\n\n{typed}" if piped.strip() and typed else piped or typed
    if not prompt.strip():
        raise UsageError(
            "there is no prompt", hint='write one: coli run "Why is the sky blue?", or pipe it in'
        )
    return prompt


def _read_input() -> str:
    if sys.stdin is None or sys.stdin.closed:
        return ""
    hint = threading.Timer(_PATIENCE_S, _write_error, (_WAITING,))
    hint.daemon = True
    hint.start()
    try:
        return sys.stdin.buffer.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError("standard input is not UTF-8 text") from error
    except OSError:  # no standard input at all, as under some service managers
        return ""
    finally:
        hint.cancel()


def _is_terminal(stream: Any) -> bool:  # noqa: ANN401 - a stream, or None
    return stream is not None and not stream.closed and stream.isatty()


class _Printer:
    """Writes an answer as it comes, or as one JSON document at the end."""

    def __init__(self, options: RunOptions, *, shows_reasoning: bool) -> None:
        self._is_json = options.json
        self._is_quiet = options.quiet
        self._is_terminal = _is_terminal(sys.stdout)
        self._shows_stats = options.stats
        self._shows_reasoning = shows_reasoning and not options.quiet and not options.json
        self._text: list[str] = []
        self._reasoning: list[str] = []
        self._done: Completed | None = None

    def take(self, event: AnswerEvent) -> None:
        """Handle one event of the answer."""
        if isinstance(event, TextDelta):
            self._write_text(event.text)
        elif isinstance(event, ReasoningDelta):
            self._reasoning.append(event.text)
            if self._shows_reasoning:
                _write_error(event.text)
        elif isinstance(event, Completed):
            self._done = event

    def finish(self, model_id: str, context_length: int | None) -> None:
        """End the output: newline or JSON document, then statistics."""
        assert self._done is not None
        if self._is_json:
            document = self._document(model_id, self._done)
            sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
        elif not self._text:
            sys.stdout.write("\n")
        self.end_line()
        sys.stdout.flush()
        notice = cut_notice(self._done, context_length)
        if notice is not None and not self._is_quiet:
            _write_error(f"{notice}\n")
        wanted = self._shows_stats
        if wanted or (wanted is None and not self._is_quiet and _is_terminal(sys.stderr)):
            _write_error(f"{statistics_line(self._done)}\n")

    def end_line(self) -> None:
        """End an unfinished line on standard output, also when the answer broke off."""
        if self._text and not self._is_json and not self._text[-1].endswith("\n"):
            self._text.append("\n")
            sys.stdout.write("\n")
            sys.stdout.flush()

    def _write_text(self, text: str) -> None:
        if self._reasoning and not self._text and self._shows_reasoning:
            _write_error("\n")
        self._text.append(text)
        if self._is_json:
            return
        if self._is_terminal:
            text = visible(text)
        sys.stdout.write(text)
        sys.stdout.flush()

    def _document(self, model_id: str, done: Completed) -> dict[str, Any]:
        return {
            "schema_version": _SCHEMA_VERSION,
            "model": model_id,
            "text": "".join(self._text),
            "reasoning": "".join(self._reasoning) or None,
            "finish": done.finish,
            "stop_text": done.stop_text,
            "usage": {
                "prompt_tokens": done.prompt_tokens,
                "completion_tokens": done.completion_tokens,
                "reused_tokens": done.reused_tokens,
            },
            "timings": {
                "first_token_s": done.first_token_s,
                "total_s": done.total_s,
                "tokens_per_second": done.tokens_per_second,
            },
            "hit_percent": done.hit_percent,
            "rss_gb": done.rss_gb,
        }


def _write_error(text: str) -> None:
    sys.stderr.write(visible(text))
    sys.stderr.flush()
