"""Streams of the OpenAI SDK for Python, as it is by default, from an engine silent at first.

`silence_openai.py URL`; the prompt is in the environment.
"""

# mypy: ignore-errors

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import checks
import openai

PROMPT = os.environ["PROMPT"]
QUESTION = [{"role": "user", "content": PROMPT}]
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="any")


def chat() -> None:
    text = reasoning = ""
    for chunk in client.chat.completions.create(model="silent", messages=QUESTION, stream=True):
        delta = chunk.choices[0].delta
        text += delta.content or ""
        reasoning += getattr(delta, "reasoning_content", None) or ""
    assert (text, reasoning) == ("ok", ""), (text, reasoning)


def chat_whole() -> None:
    answer = client.chat.completions.create(model="silent", messages=QUESTION)
    assert answer.choices[0].message.content == "ok", answer


def chat_helper() -> None:
    with client.chat.completions.stream(model="silent", messages=QUESTION) as events:
        for _ in events:
            pass
        answer = events.get_final_completion()
    assert answer.choices[0].message.content == "ok", answer


def completions() -> None:
    stream = client.completions.create(model="silent", prompt=PROMPT, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == "ok"


def responses() -> None:
    text, last = "", None
    for event in client.responses.create(model="silent", input=PROMPT, stream=True):
        text += event.delta if event.type == "response.output_text.delta" else ""
        last = event
    assert (text, last.type) == ("ok", "response.completed"), (text, last)
    assert [item.type for item in last.response.output] == ["message"]


def every_stream() -> None:
    with ThreadPoolExecutor() as pool:
        for done in [
            pool.submit(one) for one in (chat, chat_whole, chat_helper, completions, responses)
        ]:
            done.result()


if __name__ == "__main__":
    checks.run([every_stream])
