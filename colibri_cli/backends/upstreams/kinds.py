"""What each kind of server offers beyond the OpenAI API, and under which names.

Pure tables: a server is recognised by the owner it gives its models. Where a kind has no word for
what is asked, the request is refused, because such servers ignore fields they do not know. Sources:
the API references of vLLM, SGLang and llama.cpp's server.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Form = Callable[[str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class MetricNames:
    """Names of a `/metrics` page; the first that exists counts. Shares are 0..1.

    Args:
        running: Requests that run.
        waiting: Requests that wait.
        kv_usage: Share of the KV cache in use.
        generated: Tokens generated since the start.
        prompt: Tokens of prompts since the start.
        decode_rate: Tokens per second, where the server says it itself.
        cache_hits: Prompt tokens found in the prefix cache.
        cache_queries: Prompt tokens looked for there.
        hit_ratio: The share of those two, where the server says it itself.
    """

    running: tuple[str, ...] = ()
    waiting: tuple[str, ...] = ()
    kv_usage: tuple[str, ...] = ()
    generated: tuple[str, ...] = ()
    prompt: tuple[str, ...] = ()
    decode_rate: tuple[str, ...] = ()
    cache_hits: tuple[str, ...] = ()
    cache_queries: tuple[str, ...] = ()
    hit_ratio: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class UpstreamKind:
    """One kind of server.

    Args:
        name: As users choose it.
        owner: What it says its models are owned by.
        options: Our name → its name of options that the OpenAI API does not have.
        forms: Kind of grammar → what a body says to ask for it.
        prefill: What a body says so that a last message of the assistant is continued; None: it
            cannot be.
        has_template_switch: `chat_template_kwargs` reach the chat template.
        budget: Its name for the reasoning budget, or None.
        stop_field: Where a choice tells which stop text ended it, or None.
        metrics: Names of its figures.
    """

    name: str
    owner: str = ""
    options: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, Form] = field(default_factory=dict)
    prefill: Mapping[str, Any] | None = None
    has_template_switch: bool = False
    budget: str | None = None
    stop_field: str | None = None
    metrics: MetricNames = field(default_factory=MetricNames)


def _json_schema(text: str) -> dict[str, Any]:
    schema = json.loads(text)
    if schema == {"type": "object"}:
        return {"response_format": {"type": "json_object"}}
    wanted = {"name": "answer", "schema": schema, "strict": True}
    return {"response_format": {"type": "json_schema", "json_schema": wanted}}


_STANDARD_FORMS: Final[Mapping[str, Form]] = {"json_schema": _json_schema}
_CONTINUED: Final = {"continue_final_message": True, "add_generation_prompt": False}
_SAMPLING: Final = {
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
}
_IDS: Final = {"ignore_eos": "ignore_eos", "stop_ids": "stop_token_ids"}

COLI: Final = UpstreamKind(
    name="coli",
    owner="colibri",
    options=_SAMPLING,
    forms={
        **_STANDARD_FORMS,
        "regex": lambda text: {"response_format": {"type": "regex", "pattern": text}},
        "lark": lambda text: {"response_format": {"type": "lark", "grammar": text}},
        "gbnf": lambda text: {"response_format": {"type": "gbnf", "grammar": text}},
    },
    prefill={},  # it continues such a message anyway, as the API of Anthropic does
    metrics=MetricNames(
        running=("colibri_slots_active",),
        waiting=("colibri_queue_depth",),
        generated=("colibri_generated_tokens_total",),
        prompt=("colibri_prompt_tokens_total",),
        cache_hits=("colibri_reused_tokens_total",),
        cache_queries=("colibri_prompt_tokens_total",),
    ),
)
VLLM: Final = UpstreamKind(
    name="vllm",
    owner="vllm",
    options={**_SAMPLING, **_IDS},
    forms={
        **_STANDARD_FORMS,
        "regex": lambda text: {"structured_outputs": {"regex": text}},
        "lark": lambda text: {"structured_outputs": {"grammar": text}},
        "gbnf": lambda text: {"structured_outputs": {"grammar": text}},
    },
    prefill=_CONTINUED,
    has_template_switch=True,
    budget="thinking_token_budget",
    stop_field="stop_reason",
    metrics=MetricNames(
        running=("vllm:num_requests_running",),
        waiting=("vllm:num_requests_waiting",),
        kv_usage=("vllm:kv_cache_usage_perc", "vllm:gpu_cache_usage_perc"),
        generated=("vllm:generation_tokens_total",),
        prompt=("vllm:prompt_tokens_total",),
        cache_hits=("vllm:prefix_cache_hits_total",),
        cache_queries=("vllm:prefix_cache_queries_total",),
    ),
)
SGLANG: Final = UpstreamKind(
    name="sglang",
    owner="sglang",
    options={**_SAMPLING, **_IDS},
    forms={
        **_STANDARD_FORMS,
        "regex": lambda text: {"regex": text},
        "gbnf": lambda text: {"ebnf": text},
    },
    prefill={"continue_final_message": True},
    has_template_switch=True,
    stop_field="matched_stop",
    metrics=MetricNames(
        running=("sglang:num_running_reqs",),
        waiting=("sglang:num_queue_reqs",),
        kv_usage=("sglang:token_usage",),
        generated=("sglang:generation_tokens_total",),
        prompt=("sglang:prompt_tokens_total",),
        decode_rate=("sglang:gen_throughput",),
        hit_ratio=("sglang:cache_hit_rate",),
    ),
)
LLAMA: Final = UpstreamKind(
    name="llama-server",
    owner="llamacpp",
    options={**_SAMPLING, "repetition_penalty": "repeat_penalty", "ignore_eos": "ignore_eos"},
    forms={**_STANDARD_FORMS, "gbnf": lambda text: {"grammar": text}},
    prefill=_CONTINUED,
    has_template_switch=True,
    budget="thinking_budget_tokens",
    metrics=MetricNames(
        running=("llamacpp:requests_processing",),
        waiting=("llamacpp:requests_deferred",),
        kv_usage=("llamacpp:kv_cache_usage_ratio",),  # not in newer ones
        generated=("llamacpp:tokens_predicted_total",),
        prompt=("llamacpp:prompt_tokens_total",),
    ),
)
OPENAI: Final = UpstreamKind(name="openai", forms=_STANDARD_FORMS)

KINDS: Final = {kind.name: kind for kind in (COLI, VLLM, SGLANG, LLAMA, OPENAI)}


def kind_of_owner(owner: object) -> UpstreamKind:
    """Return the kind whose models have this owner; one of the plain API if nobody's do."""
    return next((kind for kind in KINDS.values() if kind.owner and kind.owner == owner), OPENAI)
