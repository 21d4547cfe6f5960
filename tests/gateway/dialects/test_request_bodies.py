"""Request bodies as JSON objects: what cannot be one is refused with 400, whatever it is."""

from __future__ import annotations

import json

import pytest

from colibri_cli.gateway.dialects.base import (
    MAX_JSON_DEPTH,
    check_model,
    has_nul,
    parse_object,
    session_key_of,
    sse_frame,
)
from colibri_cli.gateway.http_types import HttpError
from tests.gateway.dialects.openai_rig import SETTINGS


def nested(depth: int) -> bytes:
    return b'{"a":' * depth + b"1" + b"}" * depth


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"nonsense",
        b"[1]",
        b'"text"',
        b"null",
        b'{"a":NaN}',
        b'{"a":-Infinity}',
        b'{"a":1e999}',  # valid JSON, but could be handed on to nobody
        b'{"a":[-1.5e400]}',
        b'{"a":"\xff"}',
        b'{"a":"\xed\xa0\x80"}',  # a surrogate as raw bytes
        '{"a":1}'.encode("utf-16"),
        b"\xef\xbb\xbf{}",
        b'{"a":"\\ud800"}',
        b'{"\\udc00":1}',
        b'{"a":[{"b":"x\\ud83dx"}]}',
        b'{"a":' + b"9" * 5000 + b"}",
        b'{"messages":[],"messages":[1]}',
        b'{"a":[{"b":1,"c":2,"\\u0062":3}]}',
        nested(MAX_JSON_DEPTH + 1),
        b'{"a":' + b"[" * 100_000,
        b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    ],
)
def test_what_is_no_object_of_unicode_text_is_refused(body: bytes) -> None:
    with pytest.raises(HttpError) as caught:
        parse_object(body)
    assert caught.value.status == 400
    assert len(caught.value.message) < 300


def test_what_stands_twice_is_named_except_in_what_a_model_wrote() -> None:
    with pytest.raises(HttpError) as caught:
        parse_object(b'{"stop":["a"],"model":"m","stop":["b"]}')
    assert caught.value.message.endswith("not valid JSON: 'stop' stands twice in one object")
    assert parse_object('{"a":1,"a":2}', "the arguments", may_repeat=True) == {"a": 2}


def test_a_number_that_is_too_long_is_told_in_our_words() -> None:
    with pytest.raises(HttpError) as caught:
        parse_object(b'{"max_tokens":' + b"9" * 5000 + b"}")
    assert caught.value.message.endswith("not valid JSON: a number has too many digits")


@pytest.mark.parametrize(
    "body", [b"{}", b' {"a": "\\ud83d\\ude00"} ', nested(MAX_JSON_DEPTH), b'{"a":1e308}']
)
def test_objects_are_taken(body: bytes) -> None:
    assert parse_object(body) == json.loads(body)


def test_nul_is_found_wherever_it_is() -> None:
    assert has_nul({"a": [{"b\0": 1}]})
    assert has_nul(["\0"])
    assert not has_nul({"a": [0, None, "x"]})


@pytest.mark.parametrize("body", [{}, {"model": None}, {"model": "test-model"}, {"model": "small"}])
def test_the_served_model_goes_by_its_id_its_aliases_or_no_name(body: dict[str, object]) -> None:
    check_model(body, SETTINGS)


@pytest.mark.parametrize("name", ["gpt-4", "", "TEST-MODEL", 7, [], "x" * 10_000])
def test_any_other_model_is_not_found(name: object) -> None:
    with pytest.raises(HttpError) as caught:
        check_model({"model": name}, SETTINGS)
    error = caught.value
    assert (error.status, error.code, error.param) == (404, "model_not_found", "model")
    assert "test-model" in error.message
    assert "small" in error.message
    assert len(error.message) < 400


def test_what_requests_of_a_conversation_share() -> None:
    body = {"prompt_cache_key": "cache", "user": "me", "metadata": {"user_id": "id"}}
    assert session_key_of(body, {"x-session-id": "header"}) == "header"
    assert session_key_of(body, {}) == "cache"
    assert session_key_of({"user": "me", "metadata": {"user_id": "id"}}, {}) == "me"
    assert session_key_of({"metadata": {"user_id": "id"}}, {}) == "id"
    assert session_key_of({"user": 7, "metadata": [], "prompt_cache_key": ""}, {}) is None


def test_a_frame_is_compact_and_keeps_characters() -> None:
    assert sse_frame({"a": "é\n"}) == 'data: {"a":"é\\n"}\n\n'.encode()
    assert sse_frame({}, "ping") == b"event: ping\ndata: {}\n\n"
