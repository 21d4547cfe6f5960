"""The engine on real kernels and tiny models, and short ways to ask it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from colibri_engine import startup
from colibri_engine.config import read_config
from colibri_protocol.messages import (
    EngineMessage,
    Finished,
    RequestOptions,
    SubmitExtended,
    TokenLogprobs,
)
from tests.fakes.tiny_checkpoint import VOCAB_SIZE

if TYPE_CHECKING:
    from pathlib import Path

    from colibri_engine.engine import Engine

Ids = list[int]
SAMPLED: dict[str, Any] = {"temperature": 1.0, "seed": 7}
GREEDY: dict[str, Any] = {"temperature": 0.0}


def start(path: Path, **changes: Any) -> Engine:  # noqa: ANN401
    """Load a model; nothing is guessed ahead unless `drafts` says so."""
    told = read_config((), {"SNAP": str(path), "COLI_DRAFT": "off"})
    config = replace(told, num_threads=2, context_length=600, kv_save=False)
    return startup.load(replace(config, **changes)).engine


def prompt_of(size: int, seed: int = 0) -> Ids:
    return [int(i) for i in np.random.default_rng(seed).integers(7, VOCAB_SIZE, size)]


def tokens(
    engine: Engine,
    request_id: int,
    prompt: Ids,
    slot: int = -1,
    **options: Any,  # noqa: ANN401
) -> tuple[Ids, Finished]:
    """Run one request with whatever else is running; return its ids and its end."""
    messages = submit(engine, request_id, prompt, slot, **options)
    while not any(isinstance(m, Finished) and m.id == request_id for m in messages):
        messages += engine.step()
    found = [m.token_id for m in messages if isinstance(m, TokenLogprobs) and m.id == request_id]
    (done,) = [m for m in messages if isinstance(m, Finished) and m.id == request_id]
    return found, done


def submit(
    engine: Engine,
    request_id: int,
    prompt: Ids,
    slot: int = -1,
    **options: Any,  # noqa: ANN401
) -> list[EngineMessage]:
    wanted = {"max_tokens": 12, "ignore_eos": True, "logprobs": 0} | options
    request = SubmitExtended(request_id, slot, RequestOptions(**wanted), ())
    return engine.submit(request, np.array(prompt, np.int32))
