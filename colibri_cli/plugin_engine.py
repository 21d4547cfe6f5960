"""An engine of a plugin's own: opened for some questions, asked greedily, closed again.

What an engine needs is imported when one is opened: plugins are loaded by many who open none.
"""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    from colibri_cli.backends.base import Backend, Completed, ModelCard
    from colibri_cli.diag.asking import Reply
    from colibri_protocol.settings import ResolvedSettings

# Nothing is read from or added to what the user's own sessions keep beside a model.
_APART: Final = {"kv_save": 0, "usage_save": 0}


class LocalEngine:
    """One loaded model.

    Args:
        backend: Open.
        card: Its model.
    """

    def __init__(self, backend: Backend, card: ModelCard) -> None:
        from colibri_cli.diag.asking import Asker

        self._backend = backend
        self._asker = Asker(backend, card)
        self.card = card

    async def answer(self, prompt: str, max_tokens: int, *, runs_on: bool = False) -> Reply:
        """Return the answer to a prompt; `runs_on`: to its full length whatever the model says."""
        return await self._asker.answer(prompt, max_tokens, runs_on=runs_on)

    async def complete(self, text: str, max_tokens: int) -> Completed:
        """Let the model continue a plain text and return the figures of that."""
        from colibri_cli.backends.base import Completed, Generation
        from colibri_protocol.messages import RequestOptions

        options = RequestOptions(max_tokens=max_tokens, temperature=0.0)
        async with await self._backend.complete(text, Generation(options)) as answer:
            async for event in answer:
                if isinstance(event, Completed):
                    return event
        raise AssertionError("an answer ends with its figures or an error")

    async def counters(self) -> Mapping[str, object]:
        """Return the raw counters of the engine."""
        return await self._backend.counters()


@asynccontextmanager
async def local_engine(settings: ResolvedSettings, **changes: object) -> AsyncIterator[LocalEngine]:
    """Open the engine of the model the settings name; histories of the user stay as they are.

    Args:
        settings: Effective settings.
        changes: Engine settings to use instead, by name.

    Raises:
        ColibriError: the model is not named, not found, or cannot be loaded.
    """
    from colibri_cli.backends.opening import native_backend

    backend = native_backend(settings, extra={**_APART, **changes})
    try:
        await backend.open()
        yield LocalEngine(backend, (await backend.models())[0])
    finally:
        await backend.close()
