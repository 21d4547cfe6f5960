"""`/plan`: where the weights of the model that answers go on this machine."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from colibri_cli.chat.command import ChatCommand
from colibri_cli.errors import UsageError

if TYPE_CHECKING:
    from colibri_cli.chat.command import Chat


async def plan(chat: Chat, argument: str) -> None:
    """Show the plan of the model, with what memory is left beside the engine that runs."""
    from colibri_cli.model_store.store import locate_model
    from colibri_cli.planning import figures
    from colibri_cli.planning.running import plan_model
    from colibri_cli.settings import effective_settings

    settings = chat.settings or effective_settings(None, "chat")
    if settings.is_given("engine_bin"):
        raise UsageError("another program is the engine, and only ours can be planned for")
    is_own = chat.recorder.endpoint is None
    path, name = locate_model((settings.text("model") if is_own else None) or chat.card.id)
    report = await asyncio.to_thread(plan_model, path, settings, [], renew=False)
    report["model"] = {"name": name, **report["model"]}
    found = report["plans"][0]
    rows = figures.rows([found])
    width = max(len(label) for label, *_ in rows)
    lines = [*figures.heading(report), *(f"{label:<{width}}  {text}" for label, text in rows)]
    for line in (*lines, *figures.remarks(found), *found["warnings"]):
        chat.screen.notice(line)
    chat.screen.notice("the engine that runs now takes its part of the memory already")


COMMANDS: Final = (
    ChatCommand("plan", "show where the model's weights go on this machine, and how fast", plan),
)
