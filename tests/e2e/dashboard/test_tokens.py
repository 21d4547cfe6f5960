"""Answers token by token: tinted by how likely each was, where the server tells it."""

from __future__ import annotations

import math

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.dashboard.reading import answers, send, until
from tests.fakes.scripted_server import DONE, Reply, ScriptedServer, answer, frame, stream

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

TOKENS = (("The", 0.9), (" cat", 0.5), (" sat", 0.1))


def likely(text: str, chance: float) -> bytes:
    """Return a chunk of one token, as OpenAI sends it when asked for log-probabilities."""
    other = {"token": " instead", "logprob": math.log(0.05), "bytes": []}
    own = {"token": text, "logprob": math.log(chance), "bytes": list(text.encode())}
    content = [{**own, "top_logprobs": [own, other]}]
    choice = {"index": 0, "delta": {"content": text}, "logprobs": {"content": content}}
    return frame({"object": "chat.completion.chunk", "choices": [choice]})


@pytest.fixture
def told(server: ScriptedServer) -> ScriptedServer:
    end = frame({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]})
    server.on_chat(stream([*(likely(*token) for token in TOKENS), end, DONE]))
    return server


def test_tokens_are_tinted_and_tell_their_alternatives(page: Page, told: ScriptedServer) -> None:
    page.goto(told.url)
    toggle = page.get_by_role("button", name="Certainty")
    toggle.click()
    expect(toggle).to_have_attribute("aria-pressed", "true")
    send(page, "hi")
    text = answers(page).get_by_role("group")
    expect(text).to_have_text("The cat sat")
    assert told.chats()[0].body["logprobs"] is True
    assert told.chats()[0].body["top_logprobs"] == 5
    tints = "nodes => nodes.map((node) => node.dataset.tint)"
    tokens = text.locator("[data-token]")
    assert tokens.evaluate_all(tints) == ["sure", "unsure", "doubtful"]
    tokens.nth(1).hover()
    tip = page.locator("[data-taken=true]")
    expect(tip).to_have_text("\u2423cat50%")
    text.focus()
    text.press("ArrowDown")
    text.press("ArrowDown")
    expect(tip).to_have_text("\u2423sat10%")
    expect(answers(page).locator("[aria-live]")).to_contain_text("\u2423sat: 10%; likely instead")
    # It is kept with the answer, and can be put aside.
    page.reload()
    expect(text).to_have_text("The cat sat")
    toggle.click()
    expect(text).to_have_count(0)
    expect(answers(page)).to_contain_text("The cat sat")


def test_a_server_that_refuses_is_told_and_answers_all_the_same(
    page: Page, server: ScriptedServer
) -> None:
    refusal = Reply.error(400, "logprobs is not supported by this model", "unsupported_parameter")
    server.on_chat(refusal, answer("plain words"))
    page.goto(server.url)
    page.get_by_role("button", name="Certainty").click()
    send(page, "hi")
    expect(answers(page)).to_contain_text("plain words")
    expect(page.get_by_role("status").filter(has_text="refuses to tell how likely")).to_be_visible()
    send(page, "again")
    expect(answers(page)).to_have_count(2)
    asked = ["logprobs" in seen.body for seen in server.chats()]
    assert asked == [True, False, False]


def test_a_server_that_leaves_them_out_is_told(page: Page, server: ScriptedServer) -> None:
    page.goto(server.url)
    toggle = page.get_by_role("button", name="Certainty")
    toggle.click()
    send(page, "hi")
    note = page.get_by_role("status").filter(has_text="did not tell how likely")
    expect(note).to_be_visible()
    toggle.click()
    expect(note).to_have_count(0)
    send(page, "again")
    until(lambda: len(server.chats()) == 2)
    assert "logprobs" not in server.chats()[1].body
