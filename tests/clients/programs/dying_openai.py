"""What the OpenAI SDK for Python makes of an engine that dies in the middle of an answer.

`dying_openai.py URL`; the prompt is in the environment.
"""

# mypy: ignore-errors

from __future__ import annotations

import os
import sys
from collections.abc import Callable

import checks
import openai

PROMPT = os.environ["PROMPT"]
QUESTION = [{"role": "user", "content": PROMPT}]
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="any", max_retries=0)


def failure_of(request: Callable[[], None]) -> openai.APIError:
    try:
        request()
    except openai.APIError as error:
        return error
    raise AssertionError("half an answer was given as a whole one")


def chat_stream() -> None:
    texts, reasons = [], []

    def read() -> None:
        for chunk in client.chat.completions.create(model="tiny", messages=QUESTION, stream=True):
            texts.append(chunk.choices[0].delta.content or "")
            reasons.append(chunk.choices[0].finish_reason)

    error = failure_of(read)
    assert error.message, error
    assert "".join(texts) == "word0 word1 word2 "
    assert set(reasons) == {None}


def chat_whole() -> None:
    error = failure_of(lambda: client.chat.completions.create(model="tiny", messages=QUESTION))
    assert isinstance(error, openai.InternalServerError), error
    assert (error.status_code, error.code) == (503, "engine_error"), error


if __name__ == "__main__":
    checks.run([chat_stream, chat_whole])
