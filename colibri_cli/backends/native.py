"""The backend on our own supervised engine process.

Renders conversations with the format the engine's MODEL message (or, for engines that send none,
the model directory) asks for; everything about the process is the supervisor's business.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from colibri_cli.backends.answer import StreamedAnswer
from colibri_cli.backends.base import Answer, Generation, Health, ModelCard
from colibri_cli.backends.prompting import ModelFormats
from colibri_cli.chat_formats.registry import directory_info
from colibri_cli.errors import ChatFormatError
from colibri_cli.logs import PROMPT_LOGGER
from colibri_cli.long_work import run_work
from colibri_cli.supervisor.spawn import engine_family
from colibri_protocol.messages import Segment, SegmentKind

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from colibri_cli.backends.prompting import PreparedRequest
    from colibri_cli.chat_formats.base import Conversation
    from colibri_cli.supervisor.client import EngineClient
    from colibri_cli.supervisor.lifecycle import EngineSupervisor
    from colibri_cli.supervisor.telemetry import Telemetry
    from colibri_protocol.errors import ColibriError


_PART_BYTES: Final = 128  # of work beside its text

prompt_logger = logging.getLogger(PROMPT_LOGGER)


class NativeBackend:
    """Answers from a supervised engine.

    Args:
        supervisor: Started by `open`, stopped by `close`.
        model_id: Name the model is served under.
        salvages_calls: Malformed calls are taken for what they probably mean.
    """

    def __init__(
        self, supervisor: EngineSupervisor, model_id: str, *, salvages_calls: bool = False
    ) -> None:
        self._salvages_calls = salvages_calls
        self._supervisor = supervisor
        self._model_id = model_id
        self._formats: ModelFormats | None = None
        self._formats_client: EngineClient | None = None
        self._card: ModelCard | None = None
        self._card_client: EngineClient | None = None

    @property
    def model_id(self) -> str:
        """Name the model is served under."""
        return self._model_id

    @property
    def model_path(self) -> Path:
        """What the engine loads."""
        return self._supervisor.launch.model_path

    @property
    def supervisor(self) -> EngineSupervisor:
        """The supervisor, for what only the native engine can tell (pid, crash reports)."""
        return self._supervisor

    @property
    def last_end(self) -> str | None:
        """How the engine ended last, and what is done about it."""
        crash = self._supervisor.last_crash
        return None if crash is None else f"{crash.explain()}; starting another one"

    @property
    def failure(self) -> ColibriError | None:
        """Why there will be no engine any more, once that is so."""
        failure, crash = self._supervisor.failure, self._supervisor.last_crash
        return failure if failure is not None or crash is None else crash.to_error()

    def note_port(self, port: int) -> None:
        """Let engines know whose they are."""
        self._supervisor.add_environment(COLI_SERVE_PORT=str(port))

    async def open(self) -> None:
        """Start the engine and wait until it is ready.

        Raises:
            EngineStartError: it cannot be started.
        """
        await self._supervisor.start()

    async def chat(self, conversation: Conversation, generation: Generation) -> Answer:
        """Begin the next assistant turn.

        Raises:
            ChatFormatError: the conversation cannot be written down for this model.
            CapabilityMissing: an option is beyond the engine.
        """
        client = await self._supervisor.client()
        prepare = partial(self._formats_of(client).prepare_chat, conversation, generation)
        prepared = await run_work(max(generation.num_bytes, _size_of(conversation)), prepare)
        return _begin(client, prepared, generation.label)

    async def complete(self, prompt: str, generation: Generation) -> Answer:
        """Begin the continuation of a plain text; control tokens in it are just text."""
        client = await self._supervisor.client()
        prepared = self._formats_of(client).prepare_text(prompt, generation)
        return _begin(client, prepared, generation.label)

    async def count(self, conversation: Conversation) -> int:
        """Return the number of tokens of a conversation's prompt."""
        client = await self._supervisor.client()
        render = partial(self._formats_of(client).render, conversation)
        prompt = await run_work(_size_of(conversation), render)
        return await client.count(prompt.segments)

    async def count_text(self, text: str) -> int:
        """Return the number of tokens of a plain text."""
        client = await self._supervisor.client()
        return await client.count((Segment(SegmentKind.TEXT, text),))

    async def counters(self) -> Mapping[str, object]:
        """Return the engine's raw counters."""
        client = await self._supervisor.client()
        return await client.stats()

    async def models(self) -> list[ModelCard]:
        """Return the one model of this engine."""
        client = await self._supervisor.client()
        if self._card is None or self._card_client is not client:  # every request asks for it
            self._card = self._with_chat_format(client, self._card_of(client))
            self._card_client = client
        return [self._card]

    async def health(self) -> Health:
        """Return the state of the engine process."""
        crash = self._supervisor.last_crash
        return Health(
            self._supervisor.state.value,
            self._supervisor.num_crashes,
            crash.describe() if crash is not None else None,
            self._supervisor.ready_in_s,
        )

    def telemetry(self) -> Telemetry:
        """Return the latest figures; the counters go on when an engine is restarted."""
        return self._supervisor.telemetry

    async def close(self) -> None:
        """Stop the engine."""
        await self._supervisor.stop()

    def _card_of(self, client: EngineClient) -> ModelCard:
        info = client.model
        if info is None:
            return ModelCard(self._model_id, engine_family(self.model_path))
        return ModelCard(
            id=self._model_id,
            family=str(info.get("family", "unknown")),
            context_length=_whole(info.get("context_length")),
            num_experts=_whole(info.get("num_experts")),
            file_bytes=_whole(info.get("file_bytes")),
            resident_bytes=_whole(info.get("resident_bytes")),
            capabilities=client.caps,
            details=info,
        )

    def _with_chat_format(self, client: EngineClient, card: ModelCard) -> ModelCard:
        try:
            can_think = self._formats_of(client).chat_format.can_think
        except ChatFormatError:  # said when a conversation is begun
            return card
        return replace(card, has_chat_format=True, can_think=can_think)

    def _formats_of(self, client: EngineClient) -> ModelFormats:
        if self._formats is None or self._formats_client is not client:
            info = client.model
            if info is None:
                info = directory_info(self.model_path)
            self._formats = ModelFormats(info, client.caps, salvages_calls=self._salvages_calls)
            self._formats_client = client
        return self._formats


def _begin(client: EngineClient, prepared: PreparedRequest, label: str) -> Answer:
    if prompt_logger.isEnabledFor(logging.DEBUG):
        prompt = "".join(segment.text for segment in prepared.request.segments)
        prompt_logger.debug("%s prompt %r", label, prompt)
    return StreamedAnswer(client.submit, prepared.request, prepared.text, prepared.plan)


def _size_of(conversation: Conversation) -> int:
    """Return about how much there is to be written down."""
    texts = sum(len(m.content) + len(m.reasoning or "") for m in conversation.messages)
    parts = sum(1 + len(m.tool_calls) for m in conversation.messages)
    return texts + _PART_BYTES * (parts + len(conversation.tools))


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
