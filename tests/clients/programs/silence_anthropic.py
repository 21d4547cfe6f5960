"""Streams of the Anthropic SDK for Python, as it is by default, from an engine silent at first.

`silence_anthropic.py URL`; the prompt is in the environment.
"""

# mypy: ignore-errors

from __future__ import annotations

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import anthropic
import checks

FIELDS = {
    "model": "silent",
    "max_tokens": 100,
    "messages": [{"role": "user", "content": os.environ["PROMPT"]}],
}
client = anthropic.Anthropic(base_url=sys.argv[1], auth_token="any")


def message() -> None:
    text = "".join(
        event.delta.text
        for event in client.messages.create(**FIELDS, stream=True)
        if event.type == "content_block_delta"
    )
    assert text == "ok"


def helper() -> None:
    with client.messages.stream(**FIELDS) as stream:
        text = "".join(stream.text_stream)
        answer = stream.get_final_message()
    assert (text, answer.stop_reason) == ("ok", "end_turn"), answer
    assert [block.type for block in answer.content] == ["text"]


def whole() -> None:
    assert client.messages.create(**FIELDS).content[0].text == "ok"


def every_stream() -> None:
    with ThreadPoolExecutor() as pool:
        for done in [pool.submit(one) for one in (message, helper, whole)]:
            done.result()


if __name__ == "__main__":
    checks.run([every_stream])
