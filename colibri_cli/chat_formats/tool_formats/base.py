"""What every tool-call syntax offers: a parser for the answer and a grammar that forces calls.

Pure text in, events out; knows no HTTP and no engine. A parser is fed the answer after reasoning
was split off, in any pieces, and gives the same events however the text was cut.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from colibri_cli.chat_formats.base import ThinkingStart
    from colibri_protocol.messages import Grammar


class DeclaredTool(Protocol):
    """A function the model may call (the gateway's `ToolDeclaration` is one)."""

    @property
    def name(self) -> str:
        """Its name."""
        ...

    @property
    def parameters(self) -> Mapping[str, Any]:
        """JSON schema of its arguments, an object schema."""
        ...

    @property
    def declaration(self) -> Mapping[str, Any]:
        """The function object as the client sent it."""
        ...

    @property
    def is_strict(self) -> bool:
        """The arguments must satisfy the schema."""
        ...


class CallChoice(Protocol):
    """What the client wants done with the tools (the gateway's `ToolChoice` is one)."""

    @property
    def mode(self) -> str:
        """`auto`, `none`, `required` or `named`."""
        ...

    @property
    def name(self) -> str | None:
        """For `named`, the function."""
        ...


@dataclass(frozen=True, slots=True)
class AnswerFrame:
    """What a grammar of calls has to fit into.

    Args:
        thinking: The state the text begins in.
        special_tokens: Text and id of the model's control tokens: a grammar can name those only as
            tokens; every other marker is ordinary text.
        parallel: False allows one call only.
        final: The form of an answer that is no call, of kind "json_schema" or "regex"; None: any
            text. Beside a form nothing is allowed but calls, since free text could not end.
    """

    thinking: ThinkingStart
    special_tokens: Mapping[str, int] | None = None
    parallel: bool = True
    final: Grammar | None = None


@dataclass(frozen=True, slots=True)
class Text:
    """More of the answer outside calls."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The model calls this function; its arguments follow. `id` is the server's, if it gave one."""

    name: str
    id: str = ""


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of the arguments' JSON text; the pieces of one call add up to one object."""

    text: str


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The arguments are complete."""


@dataclass(frozen=True, slots=True)
class CallAborted:
    """The call that was started will never be complete: it is no call.

    A whole answer leaves it out. A stream has already shown its beginning and just ends it. What
    the model wrote follows as `Text`, unless a limit cut it.

    Args:
        raw: What the model wrote, markers included.
    """

    raw: str


ToolEvent = Text | CallStarted | CallArguments | CallFinished | CallAborted


class ToolParser(Protocol):
    """Finds calls in one answer."""

    def feed(self, text: str) -> list[ToolEvent]:
        """Take the next piece of the answer."""
        ...

    def finish(self, *, was_cut: bool) -> list[ToolEvent]:
        """Return what was held back; call once.

        Args:
            was_cut: The answer ended because of a limit: an incomplete call is not completed.
        """
        ...


class ToolSyntax(Protocol):
    """One way of writing calls down."""

    @property
    def name(self) -> str:
        """The file's name."""
        ...

    @property
    def trigger(self) -> str:
        """The text that opens a call."""
        ...

    @property
    def kept_markers(self) -> tuple[str, ...]:
        """Control texts that the reasoning splitter must leave in the answer for the parser."""
        ...

    def is_used_by(self, template: str) -> bool:
        """Return whether a chat template writes calls like this."""
        ...

    def parser(self, tools: Sequence[DeclaredTool], *, parallel: bool = True) -> ToolParser:
        """Return a parser for one answer.

        Args:
            tools: What was offered.
            parallel: False keeps only the first call.
        """
        ...

    def forced_grammar(
        self, tools: Sequence[DeclaredTool], choice: CallChoice, frame: AnswerFrame
    ) -> str:
        """Return a grammar (kind "lark", the dialect of llguidance) for the whole generated text.

        `required` and `named` allow nothing but calls (after reasoning, where the prompt opened
        it); `auto` allows free text up to the trigger and then a valid call, or calls or the final
        form of the frame.

        Args:
            tools: What was offered, at least one.
            choice: What the client wants; not `none`.
            frame: What surrounds the calls.
        """
        ...
