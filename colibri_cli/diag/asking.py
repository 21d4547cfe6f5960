"""Asking a backend for the harness: whole answers, and how likely a given text is.

A text is scored by holding the reply to it with a grammar and adding the log-probabilities the
model gave to the tokens, which the mask does not change. Where a text can be cut into tokens in
more than one way, each next token is the likeliest that fits.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from colibri_cli.backends.base import Completed, Generation, ReasoningDelta, TextDelta
from colibri_cli.chat_formats.base import ChatMessage, Conversation
from colibri_cli.errors import CapabilityMissing
from colibri_protocol.messages import Grammar, RequestOptions, Word

if TYPE_CHECKING:
    from colibri_cli.backends.base import Answer, Backend, ModelCard

_GREEDY: Final = 0.0
_SCORE_ROOM: Final = 16  # tokens a text may take beyond its bytes


@dataclass(frozen=True, slots=True)
class Reply:
    """One whole answer; `curve` has the seconds at which each piece came."""

    text: str
    done: Completed
    curve: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Score:
    """How likely a text was: the sum of its tokens' log-probabilities, and how many there were."""

    logprob: float
    num_tokens: int


class Asker:
    """Asks one model, always greedily.

    Args:
        backend: Open.
        card: Its model.
    """

    def __init__(self, backend: Backend, card: ModelCard) -> None:
        self._backend = backend
        self._card = card

    @property
    def can_score(self) -> bool:
        """Whether the engine can hold a reply to a text and tell its log-probabilities."""
        return {Word.GRAMMAR, Word.LOGPROBS} <= self._card.capabilities

    async def answer(self, prompt: str, max_tokens: int, *, runs_on: bool = False) -> Reply:
        """Return the answer to a prompt; `runs_on`: to its full length whatever the model says."""
        options = RequestOptions(max_tokens=max_tokens, temperature=_GREEDY, ignore_eos=runs_on)
        try:
            return await _whole(await self._begin(prompt, options))
        except CapabilityMissing:  # an engine of the baseline: it may end earlier
            return await _whole(await self._begin(prompt, replace(options, ignore_eos=False)))

    async def _begin(self, prompt: str, options: RequestOptions) -> Answer:
        generation = Generation(options)
        if not self._card.has_chat_format:
            return await self._backend.complete(prompt, generation)
        thinking = False if self._card.can_think else None
        conversation = Conversation((ChatMessage("user", prompt),), thinking=thinking)
        return await self._backend.chat(conversation, generation)

    async def score(self, before: str, text: str, *, start: str = "") -> Score:
        """Return how likely `text` is behind `before`; `start` are control tokens in front."""
        options = RequestOptions(
            max_tokens=len(text.encode()) + _SCORE_ROOM,
            temperature=_GREEDY,
            logprobs=0,
            grammar=Grammar("lark", f"start: {json.dumps(text, ensure_ascii=False)}"),
        )
        total, num_tokens = 0.0, 0
        generation = Generation(options, start=start)
        async with await self._backend.complete(before, generation) as answer:
            async for event in answer:
                if isinstance(event, TextDelta):
                    total += sum(token.logprob for token in event.logprobs)
                    num_tokens += len(event.logprobs)
        return Score(total, num_tokens)


async def _whole(answer: Answer) -> Reply:
    began = time.monotonic()
    text, curve, done = [], [], None
    async with answer:
        async for event in answer:
            if isinstance(event, TextDelta | ReasoningDelta):
                text.append(event.text)
                curve.append(round(time.monotonic() - began, 4))
            elif isinstance(event, Completed):
                done = event
    assert done is not None
    return Reply("".join(text), done, tuple(curve))
