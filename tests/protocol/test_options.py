"""Request options: each field checked, each refusal names its field."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from colibri_protocol.errors import BadOption
from colibri_protocol.options import Grammar, RequestOptions
from tests.protocol.strategies import OPTIONS


def parse(body: object) -> RequestOptions:
    return RequestOptions.from_json(json.dumps(body).encode())


@given(OPTIONS)
def test_options_come_back_from_their_json(options: RequestOptions) -> None:
    assert RequestOptions.from_json(options.to_json()) == options


def test_options_not_given_are_not_written() -> None:
    assert RequestOptions().to_json() == b"{}"
    assert RequestOptions(top_k=0, temperature=0).to_json() == b'{"temperature":0.0,"top_k":0}'
    assert parse({"seed": None, "logit_bias": None}) == RequestOptions()


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": "ten"}, "max_tokens"),
        ({"max_tokens": 5.0}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_tokens": 2**31}, "max_tokens"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": 2.01}, "temperature"),
        ({"temperature": "0"}, "temperature"),
        ({"temperature": True}, "temperature"),
        ({"temperature": [1]}, "temperature"),
        ({"temperature": 10**400}, "temperature"),
        ({"top_p": 0}, "top_p"),
        ({"top_p": 1.5}, "top_p"),
        ({"top_k": -1}, "top_k"),
        ({"min_p": 1.1}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"frequency_penalty": 3}, "frequency_penalty"),
        ({"presence_penalty": -3}, "presence_penalty"),
        ({"seed": -1}, "seed"),
        ({"seed": 2**64}, "seed"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"draft": -1}, "draft"),
        ({"ignore_eos": 1}, "ignore_eos"),
        ({"stop_ids": 5}, "stop_ids"),
        ({"stop_ids": [-1]}, "stop_ids"),
        ({"stop_ids": ["2"]}, "stop_ids"),
        ({"stop_ids": [True]}, "stop_ids"),
        ({"stop_ids": [1] * 1025}, "stop_ids"),
        ({"logit_bias": []}, "logit_bias"),
        ({"logit_bias": {"a": 1}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"1": "2"}}, "logit_bias"),
        ({"logit_bias": {"1": 1, "01": 1}}, "logit_bias"),
        ({"logit_bias": {"2147483648": 1}}, "logit_bias"),
        ({"logit_bias": {str(n): 0 for n in range(16_385)}}, "logit_bias"),
        ({"grammar": "x"}, "grammar"),
        ({"grammar": {"kind": "regex"}}, "grammar.text"),
        ({"grammar": {"kind": 1, "text": "x"}}, "grammar.kind"),
        ({"grammar": {"kind": "regex", "text": "x", "flags": 1}}, "grammar.flags"),
        ({"grammar": {"kind": "regex", "text": "\ud800"}}, "grammar.text"),
        ({"temprature": 1}, "temprature"),
        ([], "options"),
        (None, "options"),
    ],
)
def test_a_wrong_field_is_named(body: object, name: str) -> None:
    with pytest.raises(BadOption) as caught:
        parse(body)
    assert caught.value.name == name
    assert str(caught.value).startswith(f"{name}: ")
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"{",
        b'{"temperature":NaN}',
        b'{"temperature":Infinity}',
        b'{"temperature":1e999}',
        b'{"seed":1,"seed":1}',
        b"\xff",
        b"[" * 100_000,
        b'{"seed":' + b"9" * 10_000 + b"}",
    ],
)
def test_what_is_no_strict_json_is_refused(text: bytes) -> None:
    with pytest.raises(BadOption):
        RequestOptions.from_json(text)


@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p", "frequency_penalty"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_must_be_finite_when_built_in_code_too(name: str, value: float) -> None:
    fields: dict[str, Any] = {name: value}
    with pytest.raises(BadOption, match=name):
        RequestOptions(**fields)


@pytest.mark.parametrize("temperature", [0, 1e-6, 1e-45, 2])
def test_tiny_temperatures_are_temperatures(temperature: float) -> None:
    assert parse({"temperature": temperature}).temperature == temperature


@given(st.binary(max_size=60) | st.text(max_size=60).map(str.encode))
def test_any_bytes_are_options_or_a_bad_option(text: bytes) -> None:
    try:
        options = RequestOptions.from_json(text)
    except BadOption:
        return
    assert RequestOptions.from_json(options.to_json()) == options


def test_a_grammar_has_a_kind_and_a_text() -> None:
    assert parse({"grammar": {"kind": "regex", "text": "a+"}}).grammar == Grammar("regex", "a+")
