"""Who answers: `/attach`, `/model`, `/slot`."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from colibri_cli.backends.upstreams.backend import UpstreamBackend
from colibri_cli.chat.command import Candidate, ChatCommand
from colibri_cli.errors import UsageError
from colibri_protocol.limits import MAX_SLOT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from colibri_cli.chat.command import Chat

_AUTO: Final = "auto"


async def attach(chat: Chat, argument: str) -> None:
    """Go on with a server."""
    if not argument:
        where = chat.recorder.endpoint
        chat.screen.notice(
            f"{chat.card.id} on the server at {where}" if where
            else f"{chat.card.id} on an engine of this chat's own"
        )  # fmt: skip
        chat.screen.notice("/attach http://HOST:PORT goes on with a server")
        return
    server = UpstreamBackend(argument, chat.api_key)
    try:
        await server.open()
    except BaseException:
        await server.close()
        raise
    await chat.switch(server, server.url)
    chat.screen.notice(f"going on with {chat.card.id} on {server.url}; the conversation stays")


async def model(chat: Chat, argument: str) -> None:
    """Show who answers, or choose another model of the server."""
    backend = chat.backend
    if not isinstance(backend, UpstreamBackend):
        if argument:
            raise UsageError(
                "this chat's own engine holds one model",
                hint=f"leave, then `coli chat --continue --model {argument}` goes on with it",
            )
        chat.screen.notice(chat.card.id)
        return
    if not argument:
        chat.screen.notice(f"{chat.card.id}; the server has {', '.join(backend.names)}")
        return
    backend.use(argument)
    chat.card = (await backend.models())[0]
    chat.recorder.model = chat.card.id
    chat.screen.notice(f"going on with {chat.card.id}")


async def slot(chat: Chat, argument: str) -> None:
    """Choose the slot whose cache holds the conversation."""
    generation = chat.session.generation
    if argument:
        is_number = argument.isdecimal() and int(argument) <= MAX_SLOT
        if argument != _AUTO and not is_number:
            raise UsageError(f"/slot takes a number in 0..{MAX_SLOT} or auto, not {argument!r}")
        generation = replace(generation, slot=-1 if argument == _AUTO else int(argument))
        chat.session.generation = generation
    chosen = _AUTO if generation.slot < 0 else str(generation.slot)
    chat.screen.notice(f"slot {chosen}")


def _models(chat: Chat, beginning: str) -> Iterable[Candidate]:
    backend = chat.backend
    return [Candidate(n) for n in backend.names] if isinstance(backend, UpstreamBackend) else []


COMMANDS: Final = (
    ChatCommand("attach", "show who answers, or go on with a server; the conversation stays",
                attach, usage="[URL]"),
    ChatCommand("model", "show who answers, or choose another model of the server", model,
                usage="[NAME]", complete=_models),
    ChatCommand("slot", "choose the slot whose cache holds the conversation", slot,
                usage="[NUMBER|auto]"),
)  # fmt: skip
