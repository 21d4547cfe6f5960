"""An agent of OpenAI's Agents SDK with a tool and a typed result, over both APIs of OpenAI."""

# mypy: ignore-errors

from __future__ import annotations

import asyncio
import sys

from agents import (
    Agent,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    function_tool,
    set_tracing_disabled,
)
from checks import run
from openai import AsyncOpenAI
from pydantic import BaseModel


class Total(BaseModel):
    total: int


@function_tool
def add(first: int, second: int) -> int:
    """Add two numbers."""
    return first + second


def result_of(kind: type[OpenAIChatCompletionsModel | OpenAIResponsesModel]) -> object:
    async def body() -> object:
        async with AsyncOpenAI(base_url=f"{sys.argv[1]}/v1", api_key="any") as client:
            model = kind(model="scripted", openai_client=client)
            agent = Agent(name="adder", model=model, tools=[add], output_type=Total)
            return (await Runner.run(agent, "What is 1 + 2?", max_turns=4)).final_output

    return asyncio.run(body())


def chat_completions() -> None:
    assert result_of(OpenAIChatCompletionsModel) == Total(total=3)


def responses() -> None:
    assert result_of(OpenAIResponsesModel) == Total(total=3)


if __name__ == "__main__":
    set_tracing_disabled(True)
    run((chat_completions, responses))
