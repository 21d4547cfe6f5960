"""Conversations and hits of a search as lines to read."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from colibri_cli.chat_log.records import LoggedConversation, SearchHit


def conversation_line(conversation: LoggedConversation) -> str:
    """Return `ID  date  messages  model  title`."""
    count = f"{conversation.num_turns} message{'' if conversation.num_turns == 1 else 's'}"
    when = local_time(conversation.updated)
    return f"{conversation.short_id}  {when}  {count}  {conversation.model}  {conversation.title}"


def hit_lines(hit: SearchHit) -> list[str]:
    """Return where a turn was found, and the words around."""
    conversation = hit.conversation
    when = local_time(hit.datetime_utc)
    excerpt = " ".join(hit.excerpt.split())
    return [
        f"{conversation.short_id}  {when}  {conversation.model}  {conversation.title}",
        f"  {excerpt}",
    ]


def local_time(written: str) -> str:
    """Return a time of the log in the local zone, to the minute."""
    try:
        return datetime.fromisoformat(written).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return written
