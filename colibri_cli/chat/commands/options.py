"""How is generated and shown: `/set`, `/show`, `/think`, `/raw`, `/md`, `/stats`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from colibri_cli.chat.command import Candidate, ChatCommand
from colibri_cli.chat.conversation import set_option
from colibri_cli.errors import UsageError
from colibri_cli.sampling import CHAT_MAX_TOKENS, MAX_STOPS
from colibri_protocol.messages import RequestOptions
from colibri_protocol.settings import SETTINGS, nearest

if TYPE_CHECKING:
    from collections.abc import Iterable

    from colibri_cli.chat.command import Chat

_OPTIONS: Final = (
    "temperature", "top_p", "top_k", "min_p", "max_tokens", "seed", "repetition_penalty",
    "frequency_penalty", "presence_penalty",
)  # fmt: skip
_STOP: Final = "stop"
_DEFAULT: Final = "default"
_NAMES: Final = {
    "temp": "temperature",
    "ngen": "max_tokens",
    **{name: name for name in (*_OPTIONS, _STOP)},
}
_ON_OFF: Final = {"on": True, "off": False}
_THINKING: Final = {True: "on", False: "off", None: "left to the model"}


async def set_value(chat: Chat, argument: str) -> None:
    """Set one option for the answers to come."""
    if not argument:
        await show(chat, "")
        return
    key, _, text = argument.partition(" ")
    name = _NAMES.get(key.lower().replace("-", "_"))
    if name is None:
        near = nearest(key.lower().replace("-", "_"), set(_NAMES))
        known = ", ".join(n.replace("_", "-") for n in (*_OPTIONS, _STOP))
        raise UsageError(
            f"there is no option {key!r}",
            hint=f"did you mean {near.replace('_', '-')}?" if near else f"there are {known}",
        )
    text = text.strip()
    if not text:
        raise UsageError(
            f"/set {key} needs a value", hint=f"/set {key} {_DEFAULT} takes the default again"
        )
    session = chat.session
    if name == _STOP:
        session.generation = replace(session.generation, stop=_stops(session.generation.stop, text))
    elif text == _DEFAULT:
        default = CHAT_MAX_TOKENS if name == "max_tokens" else getattr(RequestOptions(), name)
        session.generation = set_option(session.generation, name, default)
    else:
        value = SETTINGS[name].parse(text, f"/set {key}")
        session.generation = set_option(session.generation, name, value)
    chat.screen.notice(f"{name.replace('_', '-')} {_value_of(chat, name)}")


async def show(chat: Chat, argument: str) -> None:
    """Show what holds for the next answer."""
    session, conversation = chat.session, chat.recorder.conversation
    where = f" on {chat.recorder.endpoint}" if chat.recorder.endpoint else ""
    context = f", context {chat.card.context_length}" if chat.card.context_length else ""
    rows = [("model", f"{chat.card.id}{where}{context}")]
    rows += [(name.replace("_", "-"), _value_of(chat, name)) for name in (*_OPTIONS, _STOP)]
    rows += [
        ("thinking", _THINKING[session.thinking]),
        ("reasoning", "shown" if chat.screen.shows_reasoning else "hidden"),
        ("markdown", "on" if chat.screen.is_markdown else "off"),
        ("system", session.system or "none"),
        ("attached", ", ".join(file.name for file in session.files) or "nothing"),
        ("messages", str(len(session.turns))),
        ("log", _log_of(chat) if conversation is None else conversation.short_id),
    ]
    for name, value in rows:
        chat.screen.notice(f"{name:<19} {value}")


async def think(chat: Chat, argument: str) -> None:
    """Ask for reasoning or forbid it, show or hide it, show that of the last answer."""
    word = argument.lower()
    if not word:
        shown = "shown" if chat.screen.shows_reasoning else "hidden"
        if not chat.card.can_think:
            chat.screen.notice(f"{chat.card.id} has no switch for reasoning; what comes is {shown}")
            return
        chat.screen.notice(f"thinking: {_THINKING[chat.session.thinking]}; reasoning is {shown}")
        chat.screen.notice("/think on or off changes it; show or hide what comes; last repeats it")
    elif word in _ON_OFF:
        if _ON_OFF[word] and not chat.card.can_think:
            raise UsageError(f"{chat.card.id} has no switch for reasoning")
        chat.session.thinking = _ON_OFF[word]
        chat.screen.notice(f"thinking {word}")
    elif word in {"show", "hide"}:
        chat.screen.shows_reasoning = word == "show"
        chat.screen.notice(f"reasoning is {'shown' if word == 'show' else 'hidden'}")
    elif word == "last":
        last = chat.session.last
        if last is None or not last.reasoning:
            raise UsageError("there was no reasoning before the last answer")
        chat.screen.show_reasoning_of(last.reasoning)
    else:
        raise UsageError(f"/think takes on, off, show, hide or last, not {argument!r}")


async def raw(chat: Chat, argument: str) -> None:
    """Show answers as the text they are."""
    chat.screen.is_markdown = False
    chat.screen.notice("answers are shown as they are")


async def markdown(chat: Chat, argument: str) -> None:
    """Show answers as Markdown."""
    chat.screen.is_markdown = True
    chat.screen.notice("answers are shown as Markdown")


async def figures(chat: Chat, argument: str) -> None:
    """Show or hide the line of figures."""
    if argument and argument.lower() not in _ON_OFF:
        raise UsageError(f"/stats takes on or off, not {argument!r}")
    chat.shows_figures = _ON_OFF.get(argument.lower(), not chat.shows_figures)
    chat.screen.notice(f"figures {'on' if chat.shows_figures else 'off'}")


def _stops(present: tuple[str, ...], text: str) -> tuple[str, ...]:
    """Return the stop texts with one more, or none."""
    if text in {_DEFAULT, "off"}:
        return ()
    wanted = text.strip('"').replace("\\n", "\n")
    if not wanted:
        raise UsageError("a stop text must not be empty")
    if len(present) >= MAX_STOPS:
        raise UsageError(
            f"there are {MAX_STOPS} stop texts already, as many as can be",
            hint="/set stop off removes them",
        )
    return (*present, wanted)


def _value_of(chat: Chat, name: str) -> str:
    generation = chat.session.generation
    if name == _STOP:
        return ", ".join(map(repr, generation.stop)) or "none"
    value = getattr(generation.options, name)
    row = SETTINGS[name]
    if value == getattr(RequestOptions(), name):
        return row.default_text or str(row.default)
    return str(value)


def _log_of(chat: Chat) -> str:
    return "off" if chat.recorder.path is None else "with the first answer"


def _options(chat: Chat, beginning: str) -> Iterable[Candidate]:
    if " " in beginning:
        return [Candidate(f"{beginning.split(' ', maxsplit=1)[0]} {_DEFAULT}")]
    names = (*_OPTIONS, _STOP)
    return [Candidate(name.replace("_", "-"), _value_of(chat, name)) for name in names]


def _words(*words: str) -> Iterable[Candidate]:
    return [Candidate(word) for word in words]


COMMANDS: Final = (
    ChatCommand("set", "set an option of generation; without any, show them", set_value,
                usage="[KEY VALUE]", complete=_options),
    ChatCommand("show", "show what holds for the next answer", show),
    ChatCommand("think", "ask for reasoning (on, off), show it (show, hide), or the last one again"
                " (last)", think, usage="[on|off|show|hide|last]",
                complete=lambda chat, text: _words("on", "off", "show", "hide", "last")),
    ChatCommand("raw", "show answers as the text they are", raw),
    ChatCommand("md", "show answers as Markdown", markdown, ("markdown",)),
    ChatCommand("stats", "show or hide the line of figures after each answer", figures,
                usage="[on|off]", complete=lambda chat, text: _words("on", "off")),
)  # fmt: skip
