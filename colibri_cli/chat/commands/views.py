"""What the engine or the server is doing, shown once: `/tiers`, `/experts`, `/phases`, `/queue`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.chat import figures
from colibri_cli.chat.command import ChatCommand

if TYPE_CHECKING:
    from colibri_cli.chat.command import Chat


async def tiers(chat: Chat, argument: str) -> None:
    """Show how many experts sit where."""
    chat.screen.show_view("tiers", await figures.tiers_of(chat.backend))


async def experts(chat: Chat, argument: str) -> None:
    """Show the map of experts."""
    chat.screen.show_view("experts", await figures.experts_of(chat.backend))


async def phases(chat: Chat, argument: str) -> None:
    """Show where the time of the last answer went."""
    chat.screen.show_view("phases", await figures.turns_of(chat.backend))


async def queue(chat: Chat, argument: str) -> None:
    """Show who runs and who waits on the server."""
    chat.screen.show_view("queue", await figures.queue_of(chat.backend))


COMMANDS: Final = (
    ChatCommand("tiers", "show how many experts sit in VRAM, RAM and on disk", tiers),
    ChatCommand("experts", "show the map of experts: where they sit, which are hot", experts),
    ChatCommand("phases", "show where the time of the last answer went", phases, ("profile",)),
    ChatCommand("queue", "show who runs and who waits on the server", queue),
)
