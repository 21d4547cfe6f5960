"""How the answer of `coli run` is written: as it comes, as JSON, or only its code."""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.backends.base import Completed, ReasoningDelta, TextDelta
from colibri_cli.errors import NoCodeBlock
from colibri_cli.one_shot.prompt import is_terminal
from colibri_cli.terminal.answer_text import cut_notice, statistics_line, visible
from colibri_cli.wrapping import say

if TYPE_CHECKING:
    from colibri_cli.backends.base import AnswerEvent, ModelCard
    from colibri_cli.terminal.chat_screen import TerminalScreen

SCHEMA_VERSION: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """How an answer is written.

    Args:
        is_json: As one document.
        is_jsonl: As one line of JSON per piece, and a last one with everything.
        block: Only a block of code: 0 the first, -1 the last, None all text.
        shows_reasoning: Reasoning goes to standard error.
        shows_stats: Statistics go to standard error; None: if that is a terminal.
        is_quiet: Nothing but the answer and errors.
        is_markdown: Text is shown as its Markdown reads, not as it is.
    """

    is_json: bool = False
    is_jsonl: bool = False
    block: int | None = None
    shows_reasoning: bool = True
    shows_stats: bool | None = None
    is_quiet: bool = False
    is_markdown: bool = False


class Printer:
    """Writes one answer."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._streams = not form.is_json and not form.is_jsonl and form.block is None
        is_plain = not form.is_json and not form.is_jsonl
        self._shows_reasoning = form.shows_reasoning and not form.is_quiet and is_plain
        self._is_terminal = is_terminal(sys.stdout)
        self._text: list[str] = []
        self._is_at_margin = True
        self._reasoning: list[str] = []
        self._done: Completed | None = None
        self._markdown = self._streams and form.is_markdown
        self._screen: TerminalScreen | None = None  # from the first word on

    @property
    def text(self) -> str:
        """The answer so far."""
        return "".join(self._text)

    @property
    def reasoning(self) -> str:
        """The reasoning so far."""
        return "".join(self._reasoning)

    @property
    def done(self) -> Completed | None:
        """How the answer ended; None while it has not."""
        return self._done

    def take(self, event: AnswerEvent) -> None:
        """Handle one event of the answer."""
        if isinstance(event, TextDelta):
            self._write_text(event.text)
        elif isinstance(event, ReasoningDelta):
            self._reasoning.append(event.text)
            if self._form.is_jsonl:
                _write_line({"type": "reasoning", "text": event.text})
            elif self._shows_reasoning:
                _write_error(event.text)
        elif isinstance(event, Completed):
            self._done = event

    def finish(self, card: ModelCard) -> None:
        """End the output: newline, document or block, then statistics.

        Raises:
            NoCodeBlock: a block was asked for and there is none.
        """
        assert self._done is not None
        if self._form.is_json:
            _write_line(self._document(card.id, self._done))
        elif self._form.is_jsonl:
            _write_line({"type": "done", **self._document(card.id, self._done)})
        elif self._form.block is not None:
            sys.stdout.write(self._block(self._form.block))
        elif self._markdown and not self._is_terminal:
            sys.stdout.write(rendered(self.text))
        elif not self._text:
            sys.stdout.write("\n")
        self.end_line()
        sys.stdout.flush()
        notice = cut_notice(self._done, card.context_length)
        if notice is not None and not self._form.is_quiet:
            say(visible(notice))
        wanted = self._form.shows_stats
        if wanted or (wanted is None and not self._form.is_quiet and is_terminal(sys.stderr)):
            say(visible(statistics_line(self._done, has_experts=card.num_experts != 0)))

    def end_line(self) -> None:
        """End an unfinished line on standard output, also when the answer broke off."""
        if self._screen is not None:
            self._screen.end_answer()
            self._screen = None
        elif self._streams and not self._markdown and not self._is_at_margin:
            self._is_at_margin = True
            sys.stdout.write("\n")
            sys.stdout.flush()

    def _write_text(self, text: str) -> None:
        if self._reasoning and not self._text and self._shows_reasoning:
            _write_error("\n")
        self._text.append(text)
        self._is_at_margin = text.endswith("\n") if text else self._is_at_margin
        if self._form.is_jsonl:
            _write_line({"type": "text", "text": text})
        elif self._markdown:
            if self._is_terminal:
                self._draw(text)
        elif self._streams:
            sys.stdout.write(visible(text) if self._is_terminal else text)
            sys.stdout.flush()

    def _draw(self, text: str) -> None:
        """Show more of the answer on the terminal."""
        if self._screen is None:
            from colibri_cli.terminal.chat_screen import TerminalScreen

            self._screen = TerminalScreen(is_quiet=True)
            self._screen.begin_answer()
        self._screen.show_text(text)

    def _block(self, index: int) -> str:
        from colibri_cli.terminal.markdown_blocks import code_blocks

        blocks = code_blocks(self.text)
        if not blocks:
            raise NoCodeBlock(
                "the answer has no block of code",
                hint="without --extract all of it is printed",
            )
        block = blocks[index]
        block = visible(block) if self._is_terminal else block
        return block if block.endswith("\n") else block + "\n"

    def _document(self, model_id: str, done: Completed) -> dict[str, Any]:
        return {
            "schema_version": SCHEMA_VERSION,
            "model": model_id,
            "text": self.text,
            "reasoning": self.reasoning or None,
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


def rendered(text: str) -> str:
    """Return an answer as its Markdown reads, for output that is no terminal."""
    from colibri_cli.console import stdout_console
    from colibri_cli.terminal.answer_view import MarkdownAnswer
    from colibri_cli.terminal.markdown_view import MarkdownView

    console = stdout_console()
    answer = MarkdownAnswer(MarkdownView(console))
    answer.feed(text)
    return "".join(f"{line.text}\n" for line in answer.finish((console.width, console.height)))


def _write_line(document: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(document, ensure_ascii=False) + "\n")
    sys.stdout.flush()


def _write_error(text: str) -> None:
    sys.stderr.write(visible(text))
    sys.stderr.flush()
