"""What the OpenAI SDK for Python does with a server: `openai_python.py URL [CHECK...]`."""

# mypy: ignore-errors
# ruff: noqa: ANN401

from __future__ import annotations

import json
import sys
import threading
from typing import Any, Literal

import checks
import openai
from pydantic import BaseModel

URL = sys.argv[1] + "/v1"
MODEL = "demo"
client = openai.OpenAI(base_url=URL, api_key="any", max_retries=0, timeout=120)

QUESTION = [{"role": "user", "content": "What is the capital of France?"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "Tells the weather of a city.",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "maxLength": 12}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}


class Capital(BaseModel):
    """An answer with a form."""

    city: Literal["Paris", "Rome"]
    is_large: bool


def create(**fields: Any) -> Any:
    """Ask the question with other fields."""
    fields = {"model": MODEL, "messages": QUESTION, "max_tokens": 24, **fields}
    return client.chat.completions.create(**fields)


def chat() -> None:
    answer = create()
    assert "Paris" in answer.choices[0].message.content, answer
    assert answer.choices[0].finish_reason in {"stop", "length"}
    assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens


def stream() -> None:
    whole = create(temperature=0, seed=1).choices[0].message.content
    pieces, usage = [], None
    for chunk in create(temperature=0, seed=1, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        if chunk.choices:
            pieces.append(chunk.choices[0].delta.content or "")
    assert "".join(pieces) == whole
    assert len(pieces) > 3
    assert usage.completion_tokens > 3


def stream_helper() -> None:
    with client.chat.completions.stream(model=MODEL, messages=QUESTION, max_tokens=300) as events:
        kinds = {event.type for event in events}
        final = events.get_final_completion()
    assert {"chunk", "content.delta"} <= kinds, kinds
    assert final.choices[0].message.content


def stop_and_n() -> None:
    answer = create(stop=["Paris"])
    assert "Paris" not in answer.choices[0].message.content
    assert answer.choices[0].finish_reason == "stop"


def logprobs() -> None:
    answer = create(logprobs=True, top_logprobs=2, max_tokens=3)
    tokens = answer.choices[0].logprobs.content
    assert len(tokens) == 3
    assert all(len(token.top_logprobs) == 2 and token.logprob <= 0 for token in tokens)


def tools() -> None:
    messages = [{"role": "user", "content": "What is the weather in Rome?"}]
    single = {"parallel_tool_calls": False, "max_tokens": 200}
    answer = create(messages=messages, tools=[WEATHER], tool_choice="required", **single)
    message = answer.choices[0].message
    assert answer.choices[0].finish_reason == "tool_calls", answer
    call = message.tool_calls[0]
    assert call.function.name == "weather"
    assert set(json.loads(call.function.arguments)) == {"city"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny, 25 degrees"}
    again = create(messages=[*messages, message, result], tools=[WEATHER], tool_choice="none")
    assert again.choices[0].message.content


def tools_streamed() -> None:
    messages = [{"role": "user", "content": "What is the weather in Rome?"}]
    named = {"type": "function", "function": {"name": "weather"}}
    text = ""
    for chunk in create(
        messages=messages,
        tools=[WEATHER],
        tool_choice=named,
        parallel_tool_calls=False,
        max_tokens=200,
        stream=True,
    ):
        for call in chunk.choices[0].delta.tool_calls or [] if chunk.choices else []:
            text += call.function.arguments or ""
    assert set(json.loads(text)) == {"city"}, text


def structured_output() -> None:
    answer = client.chat.completions.parse(
        model=MODEL, messages=QUESTION, response_format=Capital, max_tokens=200
    )
    parsed = answer.choices[0].message.parsed
    assert isinstance(parsed, Capital), answer


def json_object() -> None:
    answer = create(response_format={"type": "json_object"}, max_tokens=200)
    if answer.choices[0].finish_reason == "stop":
        assert isinstance(json.loads(answer.choices[0].message.content), dict)


def completions() -> None:
    answer = client.completions.create(model=MODEL, prompt="The capital of France is", max_tokens=4)
    assert answer.choices[0].text
    pieces = client.completions.create(model=MODEL, prompt="One, two,", max_tokens=4, stream=True)
    assert "".join(piece.choices[0].text for piece in pieces if piece.choices)


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
    error = fails(openai.NotFoundError, model="gpt-nowhere")
    assert error.code == "model_not_found"
    assert error.request_id.startswith("req_")
    error = fails(openai.BadRequestError, temperature=9)
    assert error.param == "temperature"
    error = fails(openai.BadRequestError, messages=[{"role": "user", "content": "word " * 9000}])
    assert error.code == "context_length_exceeded"
    assert "maximum context length is 409" in error.message
    error = fails(openai.BadRequestError, response_format={"type": "no such"})
    assert error.param == "response_format"


def error_before_stream() -> None:
    long = [{"role": "user", "content": "word " * 9000}]
    error = fails(openai.BadRequestError, messages=long, stream=True)
    assert error.code == "context_length_exceeded"


def no_route() -> None:
    try:
        client.embeddings.create(model=MODEL, input="text")
    except openai.NotFoundError:
        return
    raise AssertionError("no NotFoundError")


def retries() -> None:
    """One request runs, one waits, a third is refused, and one that retries gets through."""
    story = {"messages": [{"role": "user", "content": "Tell a long story."}], "max_tokens": 600}
    running = create(**story, stream=True)
    next(iter(running))
    waiting = threading.Thread(target=create, kwargs={**story, "max_tokens": 4})
    waiting.start()
    try:
        checks.until_queued(sys.argv[1])
        error = fails(openai.RateLimitError, max_tokens=1)
        assert int(error.response.headers["retry-after"]) >= 1
        assert error.code == "queue_full"
        patient = client.with_options(max_retries=20)
        answered = []
        retrying = threading.Thread(
            target=lambda: answered.append(
                patient.chat.completions.create(model=MODEL, messages=QUESTION, max_tokens=4)
            )
        )
        retrying.start()
        running.close()  # leaves room
        retrying.join(60)
        assert answered
    finally:
        running.close()
        waiting.join(60)


def responses() -> None:
    answer = client.responses.create(
        model=MODEL, input="What is the capital of France?", max_output_tokens=24
    )
    assert "Paris" in answer.output_text, answer
    again = client.responses.create(
        model=MODEL, input="And of Italy?", previous_response_id=answer.id, max_output_tokens=8
    )
    assert again.usage.input_tokens > answer.usage.input_tokens
    assert client.responses.retrieve(answer.id).id == answer.id
    client.responses.delete(answer.id)


def responses_streamed() -> None:
    with client.responses.stream(
        model=MODEL, input="What is the capital of France?", max_output_tokens=300
    ) as events:
        kinds = [event.type for event in events]
        final = events.get_final_response()
    assert kinds[0] == "response.created"
    assert kinds[-1] == "response.completed"
    assert "Paris" in final.output_text


def responses_tools() -> None:
    function = {"type": "function", **WEATHER["function"]}
    answer = client.responses.create(
        model=MODEL,
        input="What is the weather in Rome?",
        tools=[function],
        tool_choice="required",
        max_output_tokens=200,
    )
    calls = [item for item in answer.output if item.type == "function_call"]
    assert calls, answer
    again = client.responses.create(
        model=MODEL,
        previous_response_id=answer.id,
        input=[
            {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
            for call in calls
        ],
        max_output_tokens=8,
    )
    assert again.output_text


def responses_structured() -> None:
    answer = client.responses.parse(
        model=MODEL, input="Tell of France.", text_format=Capital, max_output_tokens=200
    )
    assert isinstance(answer.output_parsed, Capital), answer


checks.run(
    (
        chat,
        stream,
        stream_helper,
        stop_and_n,
        logprobs,
        tools,
        tools_streamed,
        structured_output,
        json_object,
        completions,
        models,
        errors,
        error_before_stream,
        no_route,
        responses,
        responses_streamed,
        responses_tools,
        responses_structured,
        retries,
    )
)
