"""`/tools`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_cli.chat.command import Candidate, ChatCommand
from colibri_cli.chat.tools import ALL

if TYPE_CHECKING:
    from collections.abc import Iterable

    from colibri_cli.chat.command import Chat


async def tools(chat: Chat, argument: str) -> None:
    """List the tools there are, or offer some to the model, or none."""
    box = chat.tools
    word, *names = argument.split() or [""]
    if word == "off":
        box.offered.difference_update(names or list(box.offered))
        box.allowed &= box.offered
    elif word:
        box.offer(names or [ALL] if word == "on" else [word, *names])
    known = box.find()
    if not known:
        chat.screen.notice("there are no tools; plugins bring them (docs/plugins.md)")
        return
    width = max(map(len, known))
    for name in sorted(known):
        state = "always runs" if name in box.allowed else "asks" if name in box.offered else "off"
        chat.screen.notice(f"{name:<{width}}  {state:<11}  {known[name].description}")


def _names(chat: Chat, beginning: str) -> Iterable[Candidate]:
    found = [Candidate("on", "offer tools to the model"), Candidate("off", "offer none")]
    known = chat.tools.find()
    return [*found, *(Candidate(name, known[name].description) for name in sorted(known))]


COMMANDS: Final = (
    ChatCommand("tools", "list the tools plugins bring; offer them to the model, or none", tools,
                usage="[on|off] [NAME...]", complete=_names),
)  # fmt: skip
