"""`/copy` and `/code`: answers and code to the clipboard of the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.chat.command import ChatCommand, number_of
from colibri_cli.errors import UsageError

if TYPE_CHECKING:
    from colibri_cli.chat.command import Chat


async def copy(chat: Chat, argument: str) -> None:
    """Copy an answer, by default the last."""
    count = len(chat.session.turns)
    if not count:
        raise UsageError("there is no answer to copy yet")
    number = number_of(argument, "an answer") or count
    if not 1 <= number <= count:
        raise UsageError(f"there is no answer {number}: this conversation has {count}")
    _copy(chat, chat.session.turns[number - 1].answer, "the answer")


async def code(chat: Chat, argument: str) -> None:
    """Copy a block of code of the last answer, by default its last."""
    from colibri_cli.terminal.markdown_blocks import code_blocks

    last = chat.session.last
    blocks = code_blocks(last.answer) if last is not None else []
    number = number_of(argument, "a block of code") or len(blocks)
    if last is None:
        raise UsageError("there is no answer to copy from yet")
    if not blocks:
        raise UsageError("there is no block of code in the last answer")
    if not 1 <= number <= len(blocks):
        raise UsageError(f"there is no block {number}: the last answer has {len(blocks)}")
    _copy(chat, blocks[number - 1], f"block {number} of {len(blocks)}")


def _copy(chat: Chat, text: str, what: str) -> None:
    chat.screen.copy(text)
    chat.screen.notice(f"copied {what}: {len(text):,} characters")


COMMANDS: Final = (
    ChatCommand("copy", "copy an answer to the clipboard, by default the last", copy,
                usage="[NUMBER]"),
    ChatCommand("code", "copy a block of code of the last answer, by default the last", code,
                usage="[NUMBER]"),
)  # fmt: skip
