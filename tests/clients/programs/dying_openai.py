"""What the OpenAI SDK for Python makes of an engine that dies in the middle of an answer.

`dying_openai.py URL`; the prompt is in the environment.
"""

# mypy: ignore-errors

from __future__ import annotations

import os
import sys

import checks
import openai

PROMPT = os.environ["PROMPT"]
QUESTION = [{"role": "user", "content": PROMPT}]
client = openai.OpenAI(base_url=sys.argv[1] + "/v1", api_key="any", max_retries=0)


def raised(chunks: object) -> tuple[str, list[str]]:
    """Return what the stream said before it raised, and its finish reasons."""
    text, reasons = "", []
    try:
        for chunk in chunks:
            text += chunk.choices[0].delta.content or ""
            reasons += filter(None, [chunk.choices[0].finish_reason])
    except openai.APIError as error:
        assert error.message, error
        return text, reasons
    raise AssertionError(f"it ended as if it were whole: {text!r}")


def chat_stream() -> None:
    chunks = client.chat.completions.create(model="tiny", messages=QUESTION, stream=True)
    assert raised(chunks) == ("word0 word1 word2 ", [])


def chat_whole() -> None:
    try:
        client.chat.completions.create(model="tiny", messages=QUESTION)
    except openai.InternalServerError as error:
        assert error.status_code == 503, error
        assert error.code == "engine_error", error
    else:
        raise AssertionError("half an answer was given as a whole one")


if __name__ == "__main__":
    checks.run([chat_stream, chat_whole])
