"""The log from within a chat: `/history`, `/search`, `/load`, `/save`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Final

from colibri_cli.chat.command import Candidate, ChatCommand, number_of
from colibri_cli.chat_log.export import as_json, as_markdown
from colibri_cli.chat_log.listing import conversation_line, hit_lines
from colibri_cli.chat_log.records import LoggedConversation, new_id, title_of
from colibri_cli.errors import LogError, UsageError
from colibri_protocol.errors import reason_of

if TYPE_CHECKING:
    from collections.abc import Iterable

    from colibri_cli.chat.command import Chat

_NUM_SHOWN: Final = 10


async def history(chat: Chat, argument: str) -> None:
    """List the latest conversations."""
    count = number_of(argument, "conversations to list") or _NUM_SHOWN
    found = await chat.recorder.read(lambda log: log.conversations(count))
    for conversation in found:
        chat.screen.notice(conversation_line(conversation))
    chat.screen.notice("/load ID goes on with one" if found else "the log is empty")


async def search(chat: Chat, argument: str) -> None:
    """Find turns of the log by their words."""
    if not argument:
        raise UsageError("name the words to look for: /search WORDS", hint="/history lists all")
    hits = await chat.recorder.read(lambda log: log.search(argument, _NUM_SHOWN))
    for hit in hits:
        for line in hit_lines(hit):
            chat.screen.notice(line)
    if not hits:
        chat.screen.notice(f"nothing in the log has {argument!r}")


async def load(chat: Chat, argument: str) -> None:
    """Go on with a conversation of the log."""
    if not argument:
        await history(chat, "")
        return
    conversation = await chat.recorder.read(lambda log: log.find(argument))
    turns = await chat.recorder.read(lambda log: log.turns(conversation))
    chat.session.resume(turns)
    chat.recorder.resume(conversation)
    for turn in turns[-2:]:
        chat.screen.show_message(turn.prompt)
        chat.screen.show_answer(turn.response)
    chat.screen.notice(resumed_notice(conversation, len(turns), chat.card.id))


async def save(chat: Chat, argument: str) -> None:
    """Write the conversation to a file, as Markdown or, for a name that ends so, as JSON."""
    session = chat.session
    if not session.turns:
        raise UsageError("there is nothing to save yet")
    conversation = chat.recorder.conversation or LoggedConversation(
        id=new_id(), title=title_of(session.turns[0].prompt), model=chat.card.id
    )
    turns = [session.logged(turn) for turn in session.turns]
    name = argument.strip("\"'") or f"chat-{conversation.short_id}.md"
    write = as_json if name.endswith(".json") else as_markdown
    path = _write_new(name, write(conversation, turns))
    chat.screen.notice(f"saved in {path}")


def _write_new(name: str, text: str) -> Path:
    """Write a file of the user's own that did not exist."""
    try:
        path = Path(name).expanduser()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogatepass") as file:
            file.write(text)
    except FileExistsError as error:
        raise UsageError(f"{name!r} exists already", hint="name another file") from error
    except (OSError, ValueError, RuntimeError) as error:
        raise UsageError(f"{name!r} cannot be written ({reason_of(error)})") from error
    return path


def resumed_notice(conversation: LoggedConversation, num_turns: int, model: str) -> str:
    """Return what is said when a conversation goes on."""
    other = f", so far with {conversation.model}" if conversation.model != model else ""
    count = "1 message" if num_turns == 1 else f"{num_turns} messages"
    return f"going on with {conversation.title!r} ({conversation.short_id}, {count}{other})"


def _ids(chat: Chat, beginning: str) -> Iterable[Candidate]:
    try:
        found = chat.recorder.known(_NUM_SHOWN)
    except LogError:
        return []
    return [Candidate(conversation.short_id, conversation.title) for conversation in found]


COMMANDS: Final = (
    ChatCommand("history", "list the latest conversations of the log", history, ("list",),
                "[COUNT]"),
    ChatCommand("search", "find messages and answers of the log by their words", search,
                usage="WORDS"),
    ChatCommand("load", "go on with a conversation of the log", load, ("resume",), "[ID]", _ids),
    ChatCommand("save", "write the conversation to a file: Markdown, or JSON for .json", save,
                usage="[FILE]", is_path=True),
)  # fmt: skip
