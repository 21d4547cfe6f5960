"""Fields of chat and text completions: what is honoured, what is refused, and in which words."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from colibri_cli.gateway.dialects.base import Served
from colibri_cli.gateway.dialects.fields import Field, object_schema
from colibri_cli.gateway.dialects.openai_fields import CHAT_FIELDS, COMPLETION_FIELDS
from colibri_cli.gateway.services import ServeSettings
from colibri_protocol.messages import RequestOptions
from tests.gateway.dialects.openai_rig import ABLE, BASELINE, SETTINGS, chat, refused

WHOLE_NUMBERS = ("max_tokens", "max_completion_tokens")


def options(served: Served = ABLE, /, **fields: object) -> RequestOptions:
    return chat(served, **fields).turn.generation.options


def test_defaults() -> None:
    parsed = chat(BASELINE)
    generation = parsed.turn.generation
    assert (generation.options.temperature, generation.options.top_p) == (0.7, 0.9)
    assert generation.options.max_tokens == 64
    assert generation.stop == ()
    assert not parsed.is_stream
    assert parsed.turn.num_choices == 1
    assert parsed.turn.cache_slot is None
    assert parsed.turn.response_format is None
    assert not parsed.turn.ignore_leading_stop


def test_the_servers_own_defaults() -> None:
    settings = ServeSettings(model_id="m", temperature=0.25, top_p=0.5, max_tokens=9)
    found = options(replace(ABLE, settings=settings))
    assert (found.temperature, found.top_p, found.max_tokens) == (0.25, 0.5, 9)


def test_null_is_absent_everywhere() -> None:
    names = [row.name for row in CHAT_FIELDS if row.name != "messages"]
    nulls = chat(BASELINE, **dict.fromkeys(names))
    plain = chat(BASELINE)
    assert nulls.turn == plain.turn
    assert nulls.is_stream == plain.is_stream


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_the_limit_is_lowered_and_never_refused(name: str) -> None:
    assert options(**{name: 100_000}).max_tokens == 64
    assert options(**{name: 3}).max_tokens == 3


def test_the_newer_name_of_the_limit_wins() -> None:
    assert options(max_tokens=5, max_completion_tokens=3).max_tokens == 3


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
@pytest.mark.parametrize("value", [0, -1, "ten", 1.0, True, [], {}])
def test_a_limit_is_a_whole_number_above_zero(name: str, value: object) -> None:
    error = refused(**{name: value})
    assert (error.param, error.code) == (name, None)
    assert name in error.message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("temperature", -1),
        ("temperature", 2.1),
        ("temperature", math.nan),
        ("temperature", math.inf),
        ("temperature", "hot"),
        ("temperature", True),
        ("top_p", 0),
        ("top_p", 1.5),
        ("top_p", math.inf),
        ("top_p", [0.5]),
        ("min_p", 1.1),
        ("top_k", -2),
        ("top_k", 1.5),
        ("repetition_penalty", 0),
        ("frequency_penalty", 3),
        ("presence_penalty", "x"),
        ("seed", 1.5),
        ("seed", 2**64),
        ("enable_thinking", "yes"),
        ("reasoning_effort", "extreme"),
        ("reasoning_effort", 3),
        ("stream", 1),
        ("stream", "true"),
        ("parallel_tool_calls", "no"),
        ("x_colibri_telemetry", 1),
        ("cache_slot", 2),
        ("cache_slot", -1),
        ("cache_slot", True),
        ("cache_slot", 1.0),
        ("logit_bias", {"x": 1}),
        ("logit_bias", {"1": 101}),
        ("logit_bias", {"1": "much"}),
        ("logit_bias", {"1": 1, "01": 1}),
        ("logit_bias", {"99999999999": 1}),
        ("logit_bias", [1]),
        ("top_logprobs", 21),
    ],
)
def test_values_out_of_range_are_refused_by_name(name: str, value: object) -> None:
    error = refused(**{name: value})
    assert error.param == name
    assert name in error.message


@pytest.mark.parametrize("value", [10**4000, -(10**400), 1e300, "x" * 100_000, {"a": "b" * 9999}])
def test_refusals_stay_short(value: object) -> None:
    assert len(refused(temperature=value).message) < 200
    assert len(refused(stop={"a": value}).message) < 200


@pytest.mark.parametrize("value", [0, 0.000001, 2, 0.7])
def test_temperatures(value: float) -> None:
    assert options(temperature=value).temperature == value


SAMPLING = [
    ("seed", 7, "seed", 7),
    ("seed", -1, "seed", 2**64 - 1),
    ("seed", 0, "seed", 0),
    ("top_k", 40, "top_k", 40),
    ("top_k", -1, "top_k", 0),
    ("min_p", 0.1, "min_p", 0.1),
    ("repetition_penalty", 1.2, "repetition_penalty", 1.2),
    ("frequency_penalty", -0.5, "frequency_penalty", -0.5),
    ("presence_penalty", 2, "presence_penalty", 2.0),
    ("logit_bias", {"5": -100, "7": 1}, "logit_bias", {5: -100.0, 7: 1.0}),
]


@pytest.mark.parametrize(("name", "value", "option", "expected"), SAMPLING)
def test_sampling_options_reach_an_engine_that_announced_them(
    name: str, value: object, option: str, expected: object
) -> None:
    assert getattr(options(**{name: value}), option) == expected


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("seed", 7),
        ("seed", 0),
        ("top_k", 40),
        ("min_p", 0.1),
        ("repetition_penalty", 1.2),
        ("frequency_penalty", 0.5),
        ("presence_penalty", -0.5),
        ("logit_bias", {"5": 1}),
        ("logprobs", True),
        ("logprobs", 1),
        ("top_logprobs", 2),
    ],
)
def test_an_engine_of_the_baseline_refuses_them_by_name(name: str, value: object) -> None:
    error = refused(BASELINE, **{name: value})
    assert (error.param, error.code) == (name, "unsupported_parameter")
    assert name in error.message


def test_what_asks_for_nothing_passes_on_every_engine() -> None:
    neutral = {
        "top_k": 0,
        "min_p": 0,
        "repetition_penalty": 1,
        "frequency_penalty": 0,
        "presence_penalty": 0.0,
        "logit_bias": {},
        "logprobs": False,
        "top_logprobs": 0,
        "n": 1,
        "modalities": ["text"],
    }
    assert chat(BASELINE, **neutral).turn == chat(BASELINE).turn


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("modalities", ["text", "audio"]),
        ("modalities", "text"),
        ("audio", {"voice": "x"}),
        ("web_search_options", {}),
    ],
)
def test_features_that_do_not_exist_are_refused_by_name(name: str, value: object) -> None:
    error = refused(**{name: value})
    assert (error.param, error.code) == (name, "unsupported_parameter")


def test_fields_that_change_nothing_pass() -> None:
    chat(store=True, service_tier="auto", metadata={"a": 1}, user="me", unknown_field=[1])


@pytest.mark.parametrize(
    ("value", "param"),
    [
        ("", "stop"),
        ([], "stop"),
        ([""], "stop.0"),
        (["a", "b", "c", "d", "e"], "stop"),
        (7, "stop"),
        (["ok", 7], "stop.1"),
        ({"a": 1}, "stop"),
    ],
)
def test_bad_stop_texts(value: object, param: str) -> None:
    error = refused(stop=value)
    assert (error.param, error.code) == (param, "invalid_value")


@pytest.mark.parametrize(("value", "stop"), [("a", ("a",)), (["a", "b"], ("a", "b"))])
def test_stop_texts(value: object, stop: tuple[str, ...]) -> None:
    assert chat(stop=value).turn.generation.stop == stop


def test_a_stop_text_before_the_answer_may_be_dropped() -> None:
    assert chat(x_colibri_ignore_leading_stop=True).turn.ignore_leading_stop
    error = refused(x_colibri_ignore_leading_stop="yes")
    assert error.param == "x_colibri_ignore_leading_stop"
    assert error.code == "invalid_value"


@pytest.mark.parametrize("value", ["usage", 7, [], {"include_usage": "yes"}, {"include_usage": 1}])
def test_bad_stream_options(value: object) -> None:
    assert refused(stream=True, stream_options=value).param == "stream_options"


def test_stream_options_need_a_stream() -> None:
    assert refused(stream_options={"include_usage": True}).param == "stream_options"
    assert chat(stream=True, stream_options={"include_usage": True}).render.include_usage
    assert not chat(stream=True, stream_options={"include_obfuscation": False}).render.include_usage


def test_each_answer_needs_a_slot() -> None:
    assert chat(n=2).turn.num_choices == 2
    for value in (3, 0, 17, True, "2"):
        error = refused(n=value)
        assert (error.param, error.code) == ("n", "unsupported_value")
    one_slot = replace(ABLE, settings=replace(SETTINGS, kv_slots=1))
    assert refused(one_slot, n=2).param == "n"
    assert refused(n=2, cache_slot=1).param == "cache_slot"


def test_a_slot_can_be_demanded() -> None:
    assert chat(cache_slot=1).turn.cache_slot == 1
    assert "0..1" in refused(cache_slot=2).message


def test_alternatives_need_log_probabilities() -> None:
    assert options(logprobs=True).logprobs == 0
    assert options(logprobs=True, top_logprobs=5).logprobs == 5
    assert options(logprobs=False, top_logprobs=0).logprobs is None
    assert refused(top_logprobs=5).param == "top_logprobs"
    assert refused(logprobs=5).param == "logprobs"


@pytest.mark.parametrize(
    ("fields", "by_default", "expected"),
    [
        ({}, False, (False, None)),
        ({}, True, (True, None)),
        ({"reasoning_effort": "none"}, True, (False, None)),
        ({"reasoning_effort": "low"}, False, (True, "low")),
        ({"enable_thinking": False, "reasoning_effort": "xhigh"}, True, (False, None)),
        ({"enable_thinking": True}, False, (True, None)),
        ({"enable_thinking": True, "reasoning_effort": "none"}, False, (True, None)),
        ({"enable_thinking": True, "reasoning_effort": "max"}, False, (True, "max")),
        ({"enable_thinking": None, "reasoning_effort": None}, True, (True, None)),
    ],
)
def test_who_decides_about_reasoning(
    fields: dict[str, Any], by_default: bool, expected: tuple[bool, str | None]
) -> None:
    served = replace(ABLE, settings=replace(SETTINGS, thinking=by_default))
    conversation = chat(served, **fields).turn.conversation
    assert conversation is not None
    assert (conversation.thinking, conversation.effort) == expected


@pytest.mark.parametrize("table", [CHAT_FIELDS, COMPLETION_FIELDS])
def test_each_field_is_one_row_and_has_a_schema(table: tuple[Field, ...]) -> None:
    schema = object_schema(table)
    assert len(schema["properties"]) == len(table)
    assert all(member["description"] for member in schema["properties"].values())
