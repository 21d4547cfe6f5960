"""Commands about turns: begin anew, go on, redo, take back, rewrite, send again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.chat.command import ChatCommand, number_of
from colibri_cli.errors import UsageError

if TYPE_CHECKING:
    from colibri_cli.chat.command import Chat


async def reset(chat: Chat, argument: str) -> None:
    """Begin a new conversation."""
    chat.session.reset()
    chat.recorder.begin()
    chat.screen.notice("new conversation")


async def more(chat: Chat, argument: str) -> None:
    """Let the last answer go on."""
    await chat.continue_answer()


async def regenerate(chat: Chat, argument: str) -> None:
    """Ask the last message again."""
    turn = chat.session.take_back()
    await chat.ask_again(turn)


async def undo(chat: Chat, argument: str) -> None:
    """Take the last turns back."""
    count = number_of(argument, "turns to take back") or 1
    number = len(chat.session.turns)
    if count > number > 0:  # `take_back` refuses where there is none
        raise UsageError(f"{count} cannot be taken back: this conversation has {number}")
    for _ in range(count):
        turn = chat.session.take_back()
        chat.screen.notice(f"taken back: {_shortened(turn.prompt)}")
    last = chat.session.last
    await chat.recorder.go_back_to(last.id if last is not None else None)


async def edit(chat: Chat, argument: str) -> None:
    """Let a message be rewritten; it and all after it are replaced by what is sent then."""
    number = number_of(argument, "a message")
    turns = chat.session.turns
    turn = turns[-1] if number is None and turns else None
    if number is not None and number <= len(turns):
        turn = turns[number - 1]
    if turn is None:
        chat.session.take_back(number)  # says what is wrong
        return
    text = await chat.source.read(turn.prompt)
    if text is None or not text.strip():
        chat.screen.notice("left as it was")
        return
    chat.session.take_back(number)
    chat.session.files = list(turn.attachments)
    await chat.ask(text)


async def retry(chat: Chat, argument: str) -> None:
    """Send the message again that got no answer."""
    if chat.session.failed is None:
        raise UsageError(
            "there is no message without an answer", hint="/regen asks for another one"
        )
    await chat.ask_again(chat.session.failed)


def _shortened(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 60 else f"{line[:59]}…"


COMMANDS: Final = (
    ChatCommand("reset", "begin a new conversation", reset, ("new", "clear")),
    ChatCommand("more", "continue an answer that was cut off or stopped", more,
                ("continua", "più", "piu")),
    ChatCommand("regen", "answer the last message anew", regenerate),
    ChatCommand("undo", "take back the last message and its answer", undo, usage="[COUNT]"),
    ChatCommand("edit", "rewrite a message, by default the last, and answer it anew", edit,
                usage="[NUMBER]"),
    ChatCommand("retry", "send the message again that got no answer", retry),
)  # fmt: skip
