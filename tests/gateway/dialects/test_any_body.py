"""Whatever a body holds, the Messages and Responses APIs answer with a turn or with a refusal."""

from __future__ import annotations

import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from colibri_cli.gateway.dialects import anthropic_messages, responses_dialect
from colibri_cli.gateway.dialects.anthropic_fields import MESSAGE_FIELDS
from colibri_cli.gateway.dialects.base import Served
from colibri_cli.gateway.dialects.responses_fields import RESPONSE_FIELDS
from colibri_cli.gateway.http_types import HttpError
from colibri_cli.gateway.services import ServeSettings
from colibri_protocol.messages import Word

SERVED = Served(
    ServeSettings("demo", max_tokens=64), words=frozenset(Word), family="glm", can_think=True
)
WORDS = re.findall(
    r"\S+",
    """
    text type role content user assistant system developer thinking signature tool_use tool_result
    tool_use_id name input id input_schema is_error enabled adaptive budget_tokens display effort
    format json_schema schema auto any tool none required message input_text output_text custom
    function function_call function_call_output call_id arguments output reasoning summary
    encrypted_content item_reference namespace tools parameters strict mode allowed_tools
    web_search refusal {} colibri: custom_tool_call verbosity demo
    """,
)
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(WORDS)
    | st.text(max_size=4)
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=5)
    ),
    max_leaves=12,
)
BLOCK = st.dictionaries(st.sampled_from(WORDS), JSON, max_size=5).flatmap(
    lambda rest: st.sampled_from(WORDS).map(lambda kind: {**rest, "type": kind})
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.lists(BLOCK) | JSON}
)


def bodies(names: list[str], valid: dict[str, Any], items: st.SearchStrategy[Any]) -> Any:  # noqa: ANN401
    fields = st.dictionaries(
        st.sampled_from(names), JSON | st.lists(BLOCK, max_size=3) | items, max_size=4
    )
    return fields.map(lambda changes: {**valid, **changes})


def check(error: HttpError) -> None:
    assert error.status in (400, 404)
    assert error.param
    assert error.message


@settings(max_examples=150)
@given(
    bodies(
        [row.name for row in MESSAGE_FIELDS],
        {"max_tokens": 8, "messages": [{"role": "user", "content": "Hi"}]},
        st.lists(MESSAGE, max_size=3),
    )
)
def test_messages(body: dict[str, Any]) -> None:
    try:
        anthropic_messages.parse_request(body, SERVED, {})
    except HttpError as error:
        check(error)


@settings(max_examples=150)
@given(
    bodies(
        [row.name for row in RESPONSE_FIELDS],
        {"input": "Hi"},
        st.lists(MESSAGE | BLOCK, max_size=3),
    )
)
def test_responses(body: dict[str, Any]) -> None:
    try:
        responses_dialect.parse_request(body, SERVED, {})
    except HttpError as error:
        check(error)
