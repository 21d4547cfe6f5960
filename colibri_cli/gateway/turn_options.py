"""What a turn demands of the backend, decided by what the engine announced; and refusals by name.

Dialects check their own fields; here is what depends on several of them, and the words for what
only the engine can refuse.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from colibri_cli.backends.base import Generation, ToolUse
from colibri_cli.errors import CapabilityMissing, EngineCrashed, EngineHung
from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.problems import retry_after
from colibri_cli.gateway.turns import ToolMode
from colibri_protocol.errors import BadOption
from colibri_protocol.messages import Grammar, Word

if TYPE_CHECKING:
    from colibri_cli.backends.base import ModelCard
    from colibri_cli.chat_formats.base import Conversation
    from colibri_cli.gateway.turns import ResponseFormat, ToolChoice, TurnRequest
    from colibri_protocol.errors import ColibriError

_ANY_OBJECT: Final = '{"type":"object"}'
_KINDS_BESIDE_CALLS: Final = frozenset({"json_schema", "regex"})
# For engines that only draft with it: any JSON value, with blanks wherever JSON allows them.
_JSON_GBNF: Final = r"""root ::= ws value ws
value ::= object | array | string | number | "true" | "false" | "null"
object ::= "{" ws ( string ws ":" ws value ws ( "," ws string ws ":" ws value ws )* )? "}"
array ::= "[" ws ( value ws ( "," ws value ws )* )? "]"
string ::= "\"" ( [^"\\\x00-\x1f] | "\\" ( ["\\/bfnrt] | "u" hex hex hex hex ) )* "\""
number ::= "-"? ( "0" | [1-9] [0-9]* ) ( "." [0-9]+ )? ( [eE] [-+]? [0-9]+ )?
hex ::= [0-9a-fA-F]
ws ::= [ \t\n\r]*
"""
_FIELDS: Final = {"thinking_budget": "thinking"}  # request fields with other names
_MUST_CALL: Final = "You must call one of the functions above. Do not answer directly."


@dataclass(frozen=True, slots=True)
class Demands:
    """What the backend is asked for.

    Args:
        generation: How to generate.
        conversation: The chat, with what has to be said about calls; None for plain text.
    """

    generation: Generation
    conversation: Conversation | None = None


def demands_of(turn: TurnRequest, card: ModelCard) -> Demands:
    """Return what to ask of an engine with this card.

    Raises:
        HttpError: 400 naming the field it cannot honour.
    """
    if turn.cache_slot is not None and not card.has_slots:
        raise _unsupported("cache_slot", "cache_slot: the server behind this one has no slots")
    generation = replace(
        turn.generation,
        is_stop_patient=turn.ignore_leading_stop,
        thinking_budget=turn.thinking_budget,
        tools=_tool_use(turn),
    )
    if turn.response_format is not None:
        generation = _constrained(generation, turn.response_format, card)
    conversation = turn.conversation
    if conversation is not None and generation.tools is not None:
        sentence = _instruction(turn.tool_choice)
        if sentence and not conversation.call_instruction:
            conversation = replace(conversation, call_instruction=sentence)
    return Demands(generation, conversation)


def explained(error: ColibriError, turn: TurnRequest, ready_in_s: float | None) -> Exception:
    """Return an error in the words of the request it concerns; others as they are.

    Args:
        error: What went wrong.
        turn: What was asked for.
        ready_in_s: When an engine is expected again.
    """
    if isinstance(error, CapabilityMissing) and error.option is not None:
        return _unsupported(_field_of(error.option, turn), error.message)
    if isinstance(error, BadOption) and error.name == "grammar":
        field = _field_of("grammar", turn)
        # one grammar holds both, and the compiler does not say which part it is
        where = f"{field} or a strict tool" if _has_both(turn) else field
        return HttpError(400, f"{where}: {error.why}", code="invalid_value", param=field)
    if isinstance(error, EngineCrashed | EngineHung):
        return HttpError(
            503,
            "the engine ended while it worked on this request; a new one is being started",
            code="engine_error",
            headers={"Retry-After": retry_after(ready_in_s)},
        )
    return error


def _tool_use(turn: TurnRequest) -> ToolUse | None:
    choice = turn.tool_choice
    offered = turn.tools
    if choice.mode is ToolMode.NONE:
        return None
    if choice.mode is ToolMode.NAMED:
        offered = tuple(tool for tool in turn.tools if tool.name == choice.name)
    return ToolUse(offered, choice, turn.parallel_tool_calls) if offered else None


def _instruction(choice: ToolChoice) -> str:
    if choice.mode is ToolMode.REQUIRED:
        return _MUST_CALL
    if choice.mode is ToolMode.NAMED:
        return f"You must call the function `{choice.name}`. Do not answer directly."
    return ""


def _constrained(generation: Generation, wanted: ResponseFormat, card: ModelCard) -> Generation:
    """Return the generation with the answer's grammar.

    Raises:
        HttpError: the engine has no grammars, or this one cannot stand beside calls.
    """
    kind, text = wanted.kind, wanted.text
    if Word.GRAMMAR in card.capabilities:
        if kind == "json_object":
            kind, text = "json_schema", _ANY_OBJECT
        if generation.tools is not None and kind not in _KINDS_BESIDE_CALLS:
            raise _unsupported(
                "response_format",
                f"response_format of the type {kind} cannot be combined with tools; use"
                " json_schema or regex, or write the calls into the grammar",
            )
        options = replace(generation.options, grammar=Grammar(kind, text))
        return replace(generation, options=options)
    if generation.tools is not None:
        raise _unsupported(
            "response_format",
            "response_format cannot be combined with tools on the running engine, which cannot"
            " constrain its answers",
        )
    is_baseline = Word.OPTIONS not in card.capabilities
    if is_baseline and card.family == "glm" and kind in {"json_object", "json_schema", "gbnf"}:
        draft = _JSON_GBNF if kind == "json_object" else text
        return replace(generation, draft_grammar=draft)
    raise _unsupported("response_format", "the running engine cannot constrain its answers")


def _unsupported(field: str, message: str) -> HttpError:
    return HttpError(400, message, code="unsupported_parameter", param=field)


def _has_both(turn: TurnRequest) -> bool:
    is_strict = any(tool.is_strict for tool in turn.tools)
    return turn.response_format is not None and is_strict


def _field_of(option: str, turn: TurnRequest) -> str:
    """Return the request field an engine option came from."""
    if option == "grammar":
        return "response_format" if turn.response_format is not None else "tools"
    return _FIELDS.get(option, option)
