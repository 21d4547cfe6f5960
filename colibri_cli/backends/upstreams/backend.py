"""The backend on a server of the OpenAI API that already runs, ours or another.

Everything about prompts, tools and slots is the server's business; here messages go out as JSON and
an event stream comes back. Knows nothing of how conversations are shown.
"""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final

from colibri_cli.backends.base import Answer, Generation, Health, ModelCard
from colibri_cli.backends.upstreams.kinds import COLI, LLAMA, OPENAI, UpstreamKind, kind_of_owner
from colibri_cli.backends.upstreams.look import Seen, look
from colibri_cli.errors import CapabilityMissing, ServerUnreachable, UsageError
from colibri_cli.supervisor.telemetry import Telemetry
from colibri_protocol.messages import TierCounts, Word

if TYPE_CHECKING:
    from collections.abc import Mapping

    import httpx

    from colibri_cli.chat_formats.base import Conversation
    from colibri_cli.errors import ServerRefused

PROBE_S: Final = 1.5
_WORDS: Final = frozenset(
    {Word.OPTIONS, Word.SEGMENTS, Word.LOGPROBS, Word.GRAMMAR, Word.COUNT, Word.STOPIDS}
)


class UpstreamBackend:
    """Answers from a server.

    Args:
        url: Its root, with or without `/v1`.
        api_key: Key to show, or None.
        transport: How to reach it; None: the network.
        kind: What it is; None: found out.
    """

    def __init__(
        self,
        url: str,
        api_key: str | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        kind: UpstreamKind | None = None,
    ) -> None:
        self.url = url.rstrip("/").removesuffix("/v1")
        self._headers = {
            **({"Authorization": f"Bearer {api_key}"} if api_key else {}),
            "Accept-Encoding": "identity",  # a compressed stream arrives late
        }
        self._transport = transport
        self._connections: httpx.AsyncClient | None = None
        self._given_kind = kind
        self._kind = kind or OPENAI
        self._card: ModelCard | None = None
        self._aliases: tuple[str, ...] = ()
        self._telemetry = Telemetry()
        self._is_relay = False

    @property
    def _client(self) -> httpx.AsyncClient:
        """Connections to the server, made when something is asked for the first time."""
        if self._connections is None:
            self._connections = _connections(self.url, self._headers, self._transport)
        return self._connections

    @property
    def names(self) -> tuple[str, ...]:
        """Names the served model answers to, the main one first; empty before `open`."""
        return (self._card.id, *self._aliases) if self._card is not None else ()

    @property
    def kind(self) -> UpstreamKind:
        """What kind of server it is; the plain API until that is known."""
        return self._kind

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
        return self._kind is COLI

    @property
    def has_our_engine(self) -> bool:
        """Whether the server is a `coli serve` that does not stand in front of another."""
        return self.is_ours and not self._is_relay

    async def open(self) -> None:
        """Find out what is served.

        Raises:
            ServerUnreachable: nobody answers, or not as such a server would.
        """
        try:
            async with asyncio.timeout(PROBE_S):
                await self._probe()
        except (OSError, ValueError) as error:  # a timeout is an OSError, too
            raise ServerUnreachable(
                f"no server answers at {self.url}",
                hint="start one with `coli serve`, or leave out --attach",
            ) from error

    async def _probe(self) -> None:
        health = await self._ask("/health")
        status = _json_object(health.content).get("status")
        if health.status == HTTPStatus.SERVICE_UNAVAILABLE:
            raise ServerUnreachable(
                f"the server at {self.url} is not ready ({status or health.status})",
                hint="try again in a moment",
            )
        models = await self._ask("/v1/models")
        if models.status != HTTPStatus.OK:
            raise self._refusal(models)
        found = _json_object(models.content).get("data")
        if not isinstance(found, list) or not found or not isinstance(found[0], dict):
            raise ServerUnreachable(f"what answers at {self.url} serves no models")
        first: dict[str, Any] = found[0]
        kind = kind_of_owner(first.get("owned_by"))
        if kind is COLI and status != "ok":
            kind = OPENAI
        self._kind = self._given_kind or kind
        self._aliases = tuple(str(m["id"]) for m in found[1:] if isinstance(m, dict) and "id" in m)
        state = _json_object(health.content) if self.is_ours else {}
        self._note_tiers(state)
        self._is_relay = "upstream" in state
        self._card = ModelCard(
            id=str(first.get("id")),
            family=str(state.get("family", "unknown")),
            context_length=_context_of(first),
            can_think=True,  # a server whose model cannot ignores the wish
            has_chat_format=True,
            has_slots=self.is_ours,
            capabilities=_WORDS,
            details={"server": self._kind.name, "url": self.url},
        )

    async def _ask(self, path: str) -> Seen:
        """Ask for an object; before the first message without what messages need.

        Raises:
            OSError: nobody answers.
            ValueError: what answers is no such server.
        """
        if self._connections is None and self._transport is None:
            return await look(f"{self.url}{path}", self._headers)
        import httpx

        try:
            response = await self._client.get(path)
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise ConnectionError(str(error)) from error
        return Seen(response.status_code, response.headers, response.content)

    def _refusal(self, seen: Seen) -> ServerRefused:
        import httpx

        from colibri_cli.backends.upstreams.errors import error_of_response

        request = httpx.Request("GET", self.url)
        return error_of_response(
            httpx.Response(
                seen.status, headers=dict(seen.headers), content=seen.content, request=request
            )
        )

    async def chat(self, conversation: Conversation, generation: Generation) -> Answer:
        """Begin the next assistant turn.

        Raises:
            CapabilityMissing: an option cannot be asked of a server.
        """
        from colibri_cli.backends.upstreams.body import chat_body

        body = chat_body(self._kind, self._model(), conversation, generation)
        return self._begin("/v1/chat/completions", body)

    async def complete(self, prompt: str, generation: Generation) -> Answer:
        """Begin the continuation of a plain text."""
        from colibri_cli.backends.upstreams.body import text_body

        body = text_body(self._kind, self._model(), prompt, generation)
        return self._begin("/v1/completions", body)

    async def count(self, conversation: Conversation) -> int:
        """Return the number of tokens of the prompt a conversation becomes."""
        from colibri_cli.backends.upstreams.body import messages_of

        messages = messages_of(conversation)
        if self._kind is not LLAMA:
            return await self._count({"model": self._model(), "messages": messages})
        rendered = await self._post("/apply-template", {"messages": messages})
        # As the server itself does with a prompt it has rendered.
        content = {"content": rendered.get("prompt"), "add_special": True, "parse_special": True}
        return await self._count(content)

    async def count_text(self, text: str) -> int:
        """Return the number of tokens of a plain text."""
        if self._kind is LLAMA:
            return await self._count({"content": text, "add_special": True})
        return await self._count({"model": self._model(), "prompt": text})

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
        if self._connections is not None:
            await self._connections.aclose()

    def _model(self) -> str:
        assert self._card is not None, "open comes first"
        return self._card.id

    def _begin(self, path: str, body: dict[str, Any]) -> Answer:
        from colibri_cli.backends.upstreams.answer import UpstreamAnswer

        request = self._client.build_request("POST", path, json=body)
        stop_field = self._kind.stop_field
        return UpstreamAnswer(self._client, request, time.monotonic, stop_field, self._note_lost)

    def _note_lost(self) -> None:
        """Learn that a request lost its connection."""

    async def _count(self, body: dict[str, Any]) -> int:
        answer = await self._post("/tokenize", body)
        count, tokens = answer.get("count"), answer.get("tokens")
        if isinstance(count, int):
            return count
        if not isinstance(tokens, list):
            raise CapabilityMissing(f"the server at {self.url} does not count tokens")
        return len(tokens)

    async def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        import httpx

        from colibri_cli.backends.upstreams.errors import error_of_response, lost

        try:
            response = await self._client.post(path, json=body)
        except httpx.HTTPError as error:
            raise lost(self.url, error) from error
        if response.status_code in {HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED}:
            raise CapabilityMissing(f"the server at {self.url} does not count tokens")
        if response.status_code != HTTPStatus.OK:
            raise error_of_response(response)
        return _json_object(response.content)

    async def _get(self, path: str) -> dict[str, Any]:
        import httpx

        from colibri_cli.backends.upstreams.errors import lost

        try:
            return _json_object((await self._client.get(path)).content)
        except httpx.HTTPError as error:
            raise lost(self.url, error) from error

    def _note_tiers(self, state: Mapping[str, Any]) -> None:
        tiers, engine = state.get("tiers"), state.get("engine")
        if isinstance(tiers, dict):
            self._telemetry.tiers = TierCounts(**tiers)
        if isinstance(engine, dict):
            self._telemetry.rss_gb = float(engine.get("rss_gb", 0.0))


def _context_of(model: Mapping[str, Any]) -> int | None:
    """Return the tokens of a context under the names servers give it in their list."""
    meta = model.get("meta")
    places = (
        model.get("context_window"),
        model.get("max_model_len"),
        meta.get("n_ctx") if isinstance(meta, dict) else None,
    )
    return next((value for value in places if isinstance(value, int)), None)


def _json_object(content: bytes) -> dict[str, Any]:
    try:
        body = json.loads(content)
    except ValueError:
        return {}
    return body if isinstance(body, dict) else {}


def _connections(
    url: str, headers: Mapping[str, str], transport: httpx.AsyncBaseTransport | None
) -> httpx.AsyncClient:
    """Return a client; the network is its transport unless another is given."""
    import httpx

    from colibri_cli.backends.upstreams.transport import KeepAliveTransport

    return httpx.AsyncClient(
        base_url=url,
        headers=headers,
        timeout=httpx.Timeout(None),  # a prompt may take minutes; connecting has a limit
        transport=transport or KeepAliveTransport(),
        trust_env=False,
    )
