"""The backend on a server of the OpenAI API that already runs, ours or another.

Everything about prompts, tools and slots is the server's business; here messages go out as JSON and
an event stream comes back. Knows nothing of how conversations are shown.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, Final

import httpx

from colibri_cli.backends.base import Answer, Generation, Health, ModelCard
from colibri_cli.backends.upstream_answer import UpstreamAnswer, error_of_response
from colibri_cli.errors import CapabilityMissing, ServerUnreachable, UsageError
from colibri_cli.supervisor.telemetry import Telemetry
from colibri_protocol.messages import RequestOptions, TierCounts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from colibri_cli.chat_formats.base import ChatMessage, Conversation

PROBE_S: Final = 1.5
_CONNECT_S: Final = 10.0
_OWNER: Final = "colibri"
_SENT: Final = (
    "max_tokens", "temperature", "top_p", "top_k", "min_p", "repetition_penalty",
    "frequency_penalty", "presence_penalty", "seed",
)  # fmt: skip


class UpstreamBackend:
    """Answers from a server.

    Args:
        url: Its root, with or without `/v1`.
        api_key: Key to show, or None.
        transport: How to reach it; None: the network.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._client = httpx.AsyncClient(
            base_url=self.url,
            headers={"Authorization": f"Bearer {api_key}"} if api_key else {},
            timeout=httpx.Timeout(None, connect=_CONNECT_S),
            transport=transport,
            trust_env=False,
            # Reading the certificates of the system takes longer than all else before a prompt.
            verify=self.url.startswith("https:"),
        )
        self._card: ModelCard | None = None
        self._aliases: tuple[str, ...] = ()
        self._is_ours = False
        self._telemetry = Telemetry()

    @property
    def names(self) -> tuple[str, ...]:
        """Names the served model answers to, the main one first; empty before `open`."""
        return (self._card.id, *self._aliases) if self._card is not None else ()

    def use(self, name: str) -> None:
        """Ask for another of the served names from now on.

        Raises:
            UsageError: the server has not named it.
        """
        names = self.names
        if name not in names or self._card is None:
            raise UsageError(
                f"the server at {self.url} does not serve {name!r}",
                hint="it has " + ", ".join(names),
            )
        self._aliases = tuple(other for other in names if other != name)
        self._card = replace(self._card, id=name)

    async def view(self, path: str) -> dict[str, Any]:
        """Return the object of a diagnostic route, empty where the server has none.

        Raises:
            ServerUnreachable: nobody answers any more.
        """
        return await self._get(path)

    @property
    def is_ours(self) -> bool:
        """Whether the server is a `coli serve`."""
        return self._is_ours

    async def open(self) -> None:
        """Find out what is served.

        Raises:
            ServerUnreachable: nobody answers, or not as such a server would.
        """
        try:
            async with asyncio.timeout(PROBE_S):
                await self._probe()
        except (TimeoutError, httpx.HTTPError, httpx.InvalidURL) as error:
            raise ServerUnreachable(
                f"no server answers at {self.url}",
                hint="start one with `coli serve`, or leave out --attach",
            ) from error

    async def _probe(self) -> None:
        health = await self._client.get("/health")
        status = _json_object(health).get("status")
        if health.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise ServerUnreachable(
                f"the server at {self.url} is not ready ({status or health.status_code})",
                hint="try again in a moment",
            )
        models = await self._client.get("/v1/models")
        if models.status_code != httpx.codes.OK:
            raise error_of_response(models, self.url)
        found = _json_object(models).get("data")
        if not isinstance(found, list) or not found or not isinstance(found[0], dict):
            raise ServerUnreachable(f"what answers at {self.url} serves no models")
        first: dict[str, Any] = found[0]
        self._is_ours = first.get("owned_by") == _OWNER and status == "ok"
        self._aliases = tuple(str(m["id"]) for m in found[1:] if isinstance(m, dict) and "id" in m)
        state = _json_object(health) if self._is_ours else {}
        self._note_tiers(state)
        context = first.get("context_window", first.get("max_model_len"))
        self._card = ModelCard(
            id=str(first.get("id")),
            family=str(state.get("family", "unknown")),
            context_length=context if isinstance(context, int) else None,
            can_think=True,  # a server whose model cannot ignores the wish
            has_chat_format=True,
        )

    async def chat(self, conversation: Conversation, generation: Generation) -> Answer:
        """Begin the next assistant turn.

        Raises:
            CapabilityMissing: an option cannot be asked of a server.
        """
        body = self._body(generation)
        body["messages"] = [_message(message) for message in conversation.messages]
        if conversation.tools:
            body["tools"] = list(conversation.tools)
        if self._is_ours and conversation.thinking is not None:
            body["enable_thinking"] = conversation.thinking
        if conversation.continues_last and not self._is_ours:
            # Ours, and the API of Anthropic, continue a last message of the assistant anyway.
            body |= {"continue_final_message": True, "add_generation_prompt": False}
        if conversation.effort is not None:
            body["reasoning_effort"] = conversation.effort
        return self._begin("/v1/chat/completions", body)

    async def complete(self, prompt: str, generation: Generation) -> Answer:
        """Begin the continuation of a plain text."""
        return self._begin("/v1/completions", {**self._body(generation), "prompt": prompt})

    async def count(self, conversation: Conversation) -> int:
        """Return the number of tokens of the prompt a conversation becomes."""
        messages = [_message(message) for message in conversation.messages]
        return await self._count({"messages": messages})

    async def count_text(self, text: str) -> int:
        """Return the number of tokens of a plain text."""
        return await self._count({"prompt": text})

    async def counters(self) -> Mapping[str, object]:
        """Return what the server tells of its scheduler."""
        health = await self._get("/health")
        found = health.get("scheduler")
        return found if isinstance(found, dict) else {}

    async def models(self) -> list[ModelCard]:
        """Return the served model.

        Raises:
            ServerUnreachable: the server was not there yet, or is not any more.
        """
        if self._card is None:
            await self.open()
        assert self._card is not None
        return [self._card]

    async def health(self) -> Health:
        """Return the state without waiting: a server we talk to is ready until it says no."""
        return Health("ready" if self._card is not None else "stopped")

    def telemetry(self) -> Telemetry:
        """Return the figures of the last look."""
        return self._telemetry

    async def close(self) -> None:
        """Close the connections; the server goes on."""
        await self._client.aclose()

    def _body(self, generation: Generation) -> dict[str, Any]:
        options = generation.options
        defaults = RequestOptions()
        for entry in fields(options):
            if entry.name not in _SENT and getattr(options, entry.name) != getattr(
                defaults, entry.name
            ):
                raise CapabilityMissing(
                    f"{entry.name} cannot be asked of a server", option=entry.name
                )
        assert self._card is not None, "open comes first"
        body: dict[str, Any] = {
            "model": self._card.id,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        for name in _SENT:
            value = getattr(options, name)
            if value != getattr(defaults, name):
                body[name] = value
        if generation.stop:
            body["stop"] = list(generation.stop)
        if generation.slot >= 0:
            body["cache_slot"] = generation.slot
        return body

    def _begin(self, path: str, body: dict[str, Any]) -> Answer:
        return UpstreamAnswer(self._client, path, body, time.monotonic)

    async def _count(self, body: dict[str, Any]) -> int:
        try:
            response = await self._client.post("/tokenize", json=body)
        except httpx.HTTPError as error:
            raise _lost(self.url) from error
        if response.status_code != httpx.codes.OK:
            raise error_of_response(response, self.url)
        count = _json_object(response).get("count")
        if not isinstance(count, int):
            raise CapabilityMissing(f"the server at {self.url} does not count tokens")
        return count

    async def _get(self, path: str) -> dict[str, Any]:
        try:
            return _json_object(await self._client.get(path))
        except httpx.HTTPError as error:
            raise _lost(self.url) from error

    def _note_tiers(self, state: Mapping[str, Any]) -> None:
        tiers, engine = state.get("tiers"), state.get("engine")
        if isinstance(tiers, dict):
            self._telemetry.tiers = TierCounts(**tiers)
        if isinstance(engine, dict):
            self._telemetry.rss_gb = float(engine.get("rss_gb", 0.0))


def _lost(url: str) -> ServerUnreachable:
    """Return the error for a server that was there and is gone."""
    return ServerUnreachable(
        f"the connection to the server at {url} was lost", hint="send the message once more"
    )


def _message(message: ChatMessage) -> dict[str, Any]:
    body: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.reasoning:
        body["reasoning_content"] = message.reasoning
    if message.tool_call_id is not None:
        body["tool_call_id"] = message.tool_call_id
    if message.name is not None:
        body["name"] = message.name
    return body


def _json_object(response: httpx.Response) -> dict[str, Any]:
    try:
        body = response.json()
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}
