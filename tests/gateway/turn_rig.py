"""Turns against the scripted engine behind the real supervisor, without HTTP."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from colibri_cli.backends.base import Generation
from colibri_cli.backends.native import NativeBackend
from colibri_cli.chat_formats.base import ChatMessage, Conversation
from colibri_cli.gateway.generation import run_turn
from colibri_cli.gateway.http_types import Request
from colibri_cli.gateway.services import ServeSettings, Services
from colibri_cli.gateway.slots import SlotChooser
from colibri_cli.gateway.turns import (
    ReasoningPiece,
    TextPiece,
    TurnCompleted,
    TurnEvent,
    TurnRequest,
)
from colibri_cli.supervisor.admission import GenerationScheduler
from colibri_cli.supervisor.lifecycle import EngineSupervisor, RestartPolicy
from colibri_protocol.messages import RequestOptions
from tests.fakes.supervised import configured

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from colibri_cli.supervisor.spawn import EngineLaunch

THINKING_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if enable_thinking %}<think>{% else %}<think></think>{% endif %}{% endif %}"
)
THINKING_MODEL = {
    "chat_template": THINKING_TEMPLATE,
    "special_tokens": {"<|im_start|>": 1, "<|im_end|>": 2, "<think>": 3, "</think>": 4},
}


@dataclass
class Client:
    """Who asks, and how it leaves."""

    peer: str = "127.0.0.1"
    has_left: asyncio.Event = field(default_factory=asyncio.Event)

    async def _gone(self) -> None:
        await self.has_left.wait()

    @property
    def request(self) -> Request:
        return Request(
            method="POST",
            path="/v1/chat/completions",
            raw_path="/v1/chat/completions",
            query={},
            headers={},
            body=b"",
            peer=self.peer,
            id="req_test",
            key_name=None,
            is_authorized=True,
            disconnected=self._gone,
        )


@asynccontextmanager
async def serving(
    launch: EngineLaunch,
    *,
    max_queue: int = 8,
    queue_timeout_s: float = 30.0,
    **config: Any,  # noqa: ANN401
) -> AsyncIterator[Services]:
    """Yield services on a ready scripted engine; `config` as in `fake_engine`."""
    policy = RestartPolicy(first_delay_s=0.01)
    backend = NativeBackend(EngineSupervisor(configured(launch, **config), policy), "fake")
    kv_slots = config.get("num_slots", 4)
    await backend.open()
    try:
        yield Services(
            backend=backend,
            scheduler=GenerationScheduler(kv_slots, max_queue, queue_timeout_s),
            slots=SlotChooser(kv_slots),
            settings=ServeSettings("fake", kv_slots=kv_slots),
        )
    finally:
        await backend.close()


def chat(text: str, **changes: Any) -> TurnRequest:  # noqa: ANN401
    """Return a chat turn of one user message; `changes` go where they belong."""
    conversation = Conversation(
        (ChatMessage("user", text),),
        thinking=changes.pop("thinking", None),
        tools=changes.pop("template_tools", ()),
    )
    options = changes.pop("options", RequestOptions(max_tokens=64))
    turn = TurnRequest(
        conversation=conversation, generation=Generation(options, changes.pop("stop", ()))
    )
    return replace(turn, **changes)


async def events_of(
    services: Services, turn: TurnRequest, client: Client | None = None
) -> list[TurnEvent]:
    async with run_turn(services, turn, (client or Client()).request) as events:
        return [event async for event in events]


async def follow(services: Services, turn: TurnRequest, take: Callable[[TurnEvent], None]) -> None:
    """Hand every event to `take` as it comes; what it raises ends the turn."""
    async with run_turn(services, turn, Client().request) as events:
        async for event in events:
            take(event)


def text_of(events: list[TurnEvent], choice: int = 0) -> str:
    return "".join(e.text for e in events if isinstance(e, TextPiece) and e.choice == choice)


def reasoning_of(events: list[TurnEvent]) -> str:
    return "".join(e.text for e in events if isinstance(e, ReasoningPiece))


def end_of(events: list[TurnEvent]) -> TurnCompleted:
    assert isinstance(events[-1], TurnCompleted)
    return events[-1]
