"""What the Anthropic SDK for Python does with a server: `anthropic_python.py URL [CHECK...]`."""

# mypy: ignore-errors
# ruff: noqa: ANN401

from __future__ import annotations

import sys
import threading
from typing import Any, Literal

import anthropic
import checks
from pydantic import BaseModel

URL = sys.argv[1]
MODEL = "demo"
client = anthropic.Anthropic(base_url=URL, auth_token="any", max_retries=0, timeout=120)

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "name": "weather",
    "description": "Tells the weather of a city.",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 12}},
        "required": ["city"],
        "additionalProperties": False,
    },
}


class Capital(BaseModel):
    """An answer with a form."""

    city: Literal["Paris", "Rome"]
    is_large: bool


def create(**fields: Any) -> Any:
    """Ask the question with other fields."""
    return client.messages.create(
        **{"model": MODEL, "messages": QUESTION, "max_tokens": 24, **fields}
    )


def message() -> None:
    answer = create(system="You are helpful.")
    assert "Paris" in answer.content[0].text, answer
    assert answer.stop_reason in {"end_turn", "max_tokens"}
    assert answer.usage.output_tokens > 3
    assert answer._request_id.startswith("req_")


def stream() -> None:
    with client.messages.stream(model=MODEL, messages=QUESTION, max_tokens=24) as events:
        text = "".join(events.text_stream)
        final = events.get_final_message()
    assert "Paris" in text
    assert final.content[0].text == text
    assert final.usage.output_tokens > 3


def stream_events() -> None:
    kinds = [event.type for event in create(stream=True)]
    assert kinds[0] == "message_start"
    assert kinds[-1] == "message_stop"
    assert "content_block_delta" in kinds


def stop_sequences() -> None:
    answer = create(stop_sequences=["Paris"])
    assert answer.stop_reason == "stop_sequence"
    assert answer.stop_sequence == "Paris"


def tools() -> None:
    messages = [{"role": "user", "content": "What is the weather in Rome?"}]
    choice = {"type": "tool", "name": "weather", "disable_parallel_tool_use": True}
    answer = create(messages=messages, tools=[WEATHER], tool_choice=choice, max_tokens=200)
    assert answer.stop_reason == "tool_use", answer
    call = next(block for block in answer.content if block.type == "tool_use")
    assert call.name == "weather"
    assert set(call.input) == {"city"}
    result = {"type": "tool_result", "tool_use_id": call.id, "content": "sunny, 25 degrees"}
    again = create(
        messages=[
            *messages,
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": [result]},
        ],
        tools=[WEATHER],
        tool_choice={"type": "none"},
    )
    assert again.content[0].text


def tools_streamed() -> None:
    messages = [{"role": "user", "content": "What is the weather in Rome?"}]
    with client.messages.stream(
        model=MODEL,
        messages=messages,
        tools=[WEATHER],
        tool_choice={"type": "any", "disable_parallel_tool_use": True},
        max_tokens=200,
    ) as events:
        final = events.get_final_message()
    calls = [block for block in final.content if block.type == "tool_use"]
    assert calls, final
    assert set(calls[0].input) == {"city"}


def structured_output() -> None:
    answer = client.messages.parse(
        model=MODEL, messages=QUESTION, output_format=Capital, max_tokens=200
    )
    assert isinstance(answer.parsed_output, Capital), answer


def count_tokens() -> None:
    counted = client.messages.count_tokens(model=MODEL, messages=QUESTION)
    usage = create(max_tokens=1).usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens
    more = client.messages.count_tokens(model=MODEL, messages=QUESTION, tools=[WEATHER])
    assert more.input_tokens > counted.input_tokens


def models() -> None:
    assert [model.id for model in client.models.list()] == [MODEL]
    assert client.models.retrieve(MODEL).id == MODEL


def fails(kind: type[Exception], **fields: Any) -> Any:
    """Return the error of a kind that a request must end with."""
    try:
        create(**fields)
    except kind as error:
        return error
    raise AssertionError(f"no {kind.__name__}")


def errors() -> None:
    error = fails(anthropic.NotFoundError, model="claude-nowhere")
    assert error.body["error"]["type"] == "not_found_error"
    assert error.request_id.startswith("req_")
    error = fails(anthropic.BadRequestError, extra_body={"temperature": 9})
    assert "temperature" in error.message
    error = fails(anthropic.BadRequestError, messages=[{"role": "user", "content": "word " * 9000}])
    assert "> 409" in error.message
    assert error.body["error"]["type"] == "invalid_request_error"


def error_before_stream() -> None:
    long = [{"role": "user", "content": "word " * 9000}]
    assert "> 409" in fails(anthropic.BadRequestError, messages=long, stream=True).message


def retries() -> None:
    """One request runs, one waits, a third is refused, and one that retries gets through."""
    story = {"messages": [{"role": "user", "content": "Tell a long story."}], "max_tokens": 600}
    running = create(**story, stream=True)
    next(iter(running))
    waiting = threading.Thread(target=create, kwargs={**story, "max_tokens": 4})
    waiting.start()
    try:
        checks.until_queued(sys.argv[1])
        error = fails(anthropic.RateLimitError, max_tokens=1)
        assert int(error.response.headers["retry-after"]) >= 1
        assert error.body["error"]["type"] == "rate_limit_error"
        patient = client.with_options(max_retries=20)
        answered = []
        retrying = threading.Thread(
            target=lambda: answered.append(
                patient.messages.create(model=MODEL, messages=QUESTION, max_tokens=4)
            )
        )
        retrying.start()
        running.close()  # leaves room
        retrying.join(60)
        assert answered
    finally:
        running.close()
        waiting.join(60)


checks.run(
    (
        message,
        stream,
        stream_events,
        stop_sequences,
        tools,
        tools_streamed,
        structured_output,
        count_tokens,
        models,
        errors,
        error_before_stream,
        retries,
    )
)
