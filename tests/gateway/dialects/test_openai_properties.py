"""Whatever JSON a body holds, it is taken or refused with a short 4xx; nothing else is raised."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_cli.gateway.dialects import openai_chat, openai_completions
from colibri_cli.gateway.dialects.base import Served, parse_object
from colibri_cli.gateway.dialects.fields import Field
from colibri_cli.gateway.dialects.openai_fields import CHAT_FIELDS, COMPLETION_FIELDS
from colibri_cli.gateway.http_types import HttpError
from tests.gateway.dialects.openai_rig import ABLE, BASELINE

WORDS = st.sampled_from(
    [
        "type",
        "function",
        "name",
        "text",
        "content",
        "role",
        "user",
        "assistant",
        "json_schema",
        "schema",
        "strict",
        "arguments",
        "parameters",
        "tool_calls",
        "gbnf",
        "grammar",
        "include_usage",
    ]
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | WORDS
    | st.text(max_size=8)
    | st.sampled_from([2**31, -(2**63), 2**64, 1e308, 0.0, -0.0, 1, "required", "none"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(WORDS | st.text(max_size=5), inner, max_size=4)
    ),
    max_leaves=12,
)
MESSAGES = st.lists(
    st.fixed_dictionaries(
        {"role": st.sampled_from(["user", "assistant", "tool", "system"]) | VALUES},
        optional={"content": VALUES, "tool_calls": VALUES, "reasoning_content": VALUES},
    ),
    max_size=3,
)


def bodies(table: tuple[Field, ...]) -> st.SearchStrategy[dict[str, Any]]:
    fields: dict[str, st.SearchStrategy[Any]] = {row.name: VALUES for row in table}
    fields["model"] = st.just("test-model") | VALUES
    if "messages" in fields:
        fields["messages"] = MESSAGES | VALUES
    return st.fixed_dictionaries({}, optional=fields)


def check(dialect: ModuleType, body: dict[str, Any], served: Served) -> None:
    refusal = None
    try:
        dialect.parse_request(parse_object(json.dumps(body)), served, {})
    except HttpError as error:
        refusal = error
    if refusal is not None:
        assert refusal.status in {400, 404}
        assert len(refusal.message) < 500
        assert refusal.message.isprintable()
        refusal.message.encode()


@pytest.mark.parametrize("served", [ABLE, BASELINE], ids=["able", "baseline"])
@settings(max_examples=60)
@given(body=bodies(CHAT_FIELDS))
def test_chat_bodies(served: Served, body: dict[str, Any]) -> None:
    check(openai_chat, body, served)


@pytest.mark.parametrize("served", [ABLE, BASELINE], ids=["able", "baseline"])
@settings(max_examples=60)
@given(body=bodies(COMPLETION_FIELDS))
def test_completion_bodies(served: Served, body: dict[str, Any]) -> None:
    check(openai_completions, body, served)


@settings(max_examples=60)
@given(messages=MESSAGES, tools=st.lists(VALUES, max_size=2), choice=VALUES, form=VALUES)
def test_the_nested_parts_of_chat_bodies(
    messages: list[Any], tools: list[Any], choice: object, form: object
) -> None:
    body = {"messages": messages, "tools": tools, "tool_choice": choice, "response_format": form}
    check(openai_chat, body, ABLE)
