"""The chat: what is sent, what is shown while an answer grows, and how each kind of end looks."""

from __future__ import annotations

import json
import re
import threading
import time
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.dashboard.reading import (
    answers,
    composer,
    noticed,
    remember_notices,
    send,
    stored,
    until,
)
from tests.fakes.scripted_server import (
    DONE,
    Reply,
    ScriptedServer,
    answer,
    delta,
    frame,
    health,
    held,
    stream,
    usage,
)

pytestmark = [pytest.mark.e2e, pytest.mark.alone]


@pytest.fixture
def chat(page: Page, server: ScriptedServer) -> Page:
    remember_notices(page)
    page.goto(server.url)
    expect(page.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    expect(page.get_by_role("complementary", name="Runtime")).to_contain_text("ready")
    return page


def said(server: ScriptedServer, place: int = -1) -> list[tuple[str, str]]:
    """Return the messages of a request, as (role, content)."""
    return [(m["role"], m["content"]) for m in server.chats()[place].body["messages"]]


def figure(page: Page, name: str) -> str:
    return answers(page).last.locator(f"[data-figure={name}]").inner_text()


def test_a_request_has_what_the_settings_say(chat: Page, server: ScriptedServer) -> None:
    send(chat, "hi")
    expect(answers(chat)).to_contain_text("Hello there.")
    body = server.chats()[0].body
    assert body["model"] == "scripted"
    assert body["messages"] == [{"role": "user", "content": "hi"}]
    assert body["stream"] is True
    assert body["stream_options"] == {"include_usage": True}
    assert (body["temperature"], body["max_completion_tokens"]) == (0.7, 4096)
    assert (body["enable_thinking"], body["cache_slot"]) == (False, 0)
    send(chat, "again")
    expect(answers(chat)).to_have_count(2)
    assert said(server) == [("user", "hi"), ("assistant", "Hello there."), ("user", "again")]


def test_a_limit_of_the_server_is_shown_and_kept(page: Page, server: ScriptedServer) -> None:
    models = {"data": [{"id": "scripted", "max_output_tokens": 100}]}
    server.routes["GET /v1/models"] = lambda _: Reply.of_json(models)
    page.goto(f"{server.url}/settings")
    expect(page.get_by_text("allows at most 100")).to_be_visible()
    page.get_by_role("navigation").get_by_role("link", name="Chat").click()
    send(page, "hi")
    until(lambda: len(server.chats()) == 1)
    assert server.chats()[0].body["max_completion_tokens"] == 100


@pytest.mark.timed
def test_figures_come_from_the_tokens_and_not_from_the_wait(
    chat: Page, server: ScriptedServer
) -> None:
    parts: list[bytes | float] = [1.5]
    for _ in range(20):
        parts += [delta(content="x"), 0.1]
    server.on_chat(stream([*parts, delta("stop"), usage(9, 20), DONE]))
    send(chat, "hi")
    expect(answers(chat).locator("[data-figure=tokens]")).to_have_text("9→20")
    assert noticed(chat, "Reading the prompt")
    # the count grows while the answer does, if not at each token
    assert any(noticed(chat, f"{count} tokens") for count in range(10, 20))
    assert 1.4 <= float(re.sub(r"[^\d.]", "", figure(chat, "ttft"))) <= 1.9
    assert 8 <= float(re.sub(r"[^\d.]", "", figure(chat, "rate"))) <= 11


def test_the_wait_in_the_queue_is_shown_if_there_was_one(
    chat: Page, server: ScriptedServer
) -> None:
    server.on_chat(answer("a", x_colibri_queue_wait_ms="1234"), answer("b"))
    send(chat, "one")
    expect(answers(chat).locator("[data-figure=queue]")).to_have_text("queue 1.2 s")
    send(chat, "two")
    expect(answers(chat)).to_have_count(2)
    expect(answers(chat).last.locator("[data-figure=tokens]")).to_be_visible()
    expect(answers(chat).last.locator("[data-figure=queue]")).to_have_count(0)


def test_a_stream_with_all_kinds_of_lines_is_read(chat: Page, server: ScriptedServer) -> None:
    server.on_chat(
        stream(
            [
                b": hello\n\n",
                b"event: x\nid: 1\nretry: 5\n" + delta(content="caff"),
                delta(content="\u00e8 \U0001f426"),
                frame({"choices": [], "colibri": {"stats": {"hit_percent": 93.4, "rss_gb": 2.5}}}),
                delta("stop"),
                usage(3, 4),
                DONE,
            ]
        )
    )
    send(chat, "hi")
    expect(answers(chat)).to_contain_text("caff\u00e8 \U0001f426")
    expect(answers(chat).locator("[data-figure=hits]")).to_have_text("93% hits")
    expect(answers(chat).locator("[data-figure=rss]")).to_have_text("2.50 GB")


def test_a_broken_chunk_costs_itself_alone(chat: Page, server: ScriptedServer) -> None:
    server.on_chat(stream([delta(content="be"), b"data: {oops\n\n", delta("stop", content="fore")]))
    send(chat, "hi")
    expect(answers(chat)).to_contain_text("before")
    expect(answers(chat)).to_contain_text("could not be read")
    expect(composer(chat)).to_be_enabled()


def test_a_stream_that_breaks_off_is_marked_and_can_go_on(
    chat: Page, server: ScriptedServer
) -> None:
    server.on_chat(stream([delta(content="Half of ")]), answer(" it."))
    send(chat, "hi")
    expect(answers(chat)).to_contain_text("was cut off")
    chat.get_by_role("button", name="Continue").click()
    expect(answers(chat)).to_have_count(1)
    expect(answers(chat)).to_contain_text("Half of it.")
    expect(answers(chat)).not_to_contain_text("was cut off")
    assert said(server) == [("user", "hi"), ("assistant", "Half of")]


def test_an_answer_at_the_token_limit_says_so_and_goes_on(
    chat: Page, server: ScriptedServer
) -> None:
    server.on_chat(answer("one two", finish="length"), answer(" three"))
    send(chat, "hi")
    expect(answers(chat)).to_contain_text("token limit")
    chat.get_by_role("button", name="Continue").click()
    expect(answers(chat)).to_contain_text("one two three")
    expect(answers(chat)).not_to_contain_text("token limit")


def test_reasoning_is_apart_and_is_not_sent_back(chat: Page, server: ScriptedServer) -> None:
    seen = threading.Event()
    thought = [delta(reasoning_content="Hmm, "), delta(reasoning_content="yes.")]
    rest = [delta(content="42"), delta("stop"), DONE]
    server.on_chat(stream(held(thought, seen, rest)), answer("ok"))
    send(chat, "hi")
    expect(chat.get_by_role("button", name="Thinking")).to_have_attribute("aria-expanded", "true")
    seen.set()
    closed = chat.get_by_role("button", name=re.compile("Thought for"))
    expect(closed).to_have_attribute("aria-expanded", "false")
    expect(chat.get_by_text("Hmm, yes.")).to_have_count(0)
    closed.click()
    expect(chat.get_by_text("Hmm, yes.")).to_be_visible()
    send(chat, "next")
    expect(answers(chat)).to_have_count(2)
    assert said(server) == [("user", "hi"), ("assistant", "42"), ("user", "next")]


def test_signs_of_life_make_no_thoughts_and_prefill_shows_how_far_it_is(
    chat: Page, server: ScriptedServer
) -> None:
    seen = threading.Event()
    alive = [b": prefill 512/9000\n\n", delta(reasoning_content="")]
    server.on_chat(stream(held(alive, seen, [delta("stop", content="there"), DONE])))
    send(chat, "hi")
    expect(chat.get_by_text("512 of 9,000 tokens")).to_be_visible()
    seen.set()
    expect(answers(chat)).to_contain_text("there")
    expect(chat.get_by_role("button", name=re.compile("Thought|Thinking"))).to_have_count(0)


@pytest.mark.timed
def test_half_a_minute_without_a_word_is_waited_for(chat: Page, server: ScriptedServer) -> None:
    silence: list[bytes | float] = [delta(reasoning_content=""), 10.0] * 3
    server.on_chat(stream([*silence, delta("stop", content="there"), usage(5, 1), DONE]))
    send(chat, "hi")
    expect(chat.get_by_text(re.compile("Reading the prompt, 2[5-9]"))).to_be_visible()
    expect(chat.get_by_role("button", name=re.compile("Thought|Thinking"))).to_have_count(0)
    expect(answers(chat)).to_contain_text("there")
    expect(chat.get_by_role("button", name=re.compile("Thought|Thinking"))).to_have_count(0)
    assert float(re.sub(r"[^\d.]", "", figure(chat, "ttft"))) >= 29
    assert len(server.chats()) == 1


@pytest.mark.timed
@pytest.mark.parametrize("how", ["button", "key"])
def test_stop_closes_the_connection_and_keeps_the_text(
    chat: Page, server: ScriptedServer, how: str
) -> None:
    server.on_chat(stream([delta(content="Some words "), 20.0]))
    delays: list[float] = []
    while not delays or (min(delays) > 0.2 and len(delays) < 4):  # others may have the processor
        send(chat, "hi")
        button = chat.get_by_role("button", name="Stop")
        expect(answers(chat)).to_have_count(len(delays) + 1)
        expect(answers(chat).last).to_contain_text("Some words")
        pressed = time.monotonic()
        if how == "button":
            button.click()
        else:
            chat.keyboard.press("Escape")
        until(lambda: server.chats()[-1].left_at is not None, limit_s=2.0)
        delays.append((server.chats()[-1].left_at or 0) - pressed)
        expect(answers(chat).last).to_contain_text("Stopped.")
        expect(composer(chat)).to_be_focused()
    assert min(delays) <= 0.2, delays


def test_stop_before_the_first_word_leaves_no_empty_answer(
    chat: Page, server: ScriptedServer
) -> None:
    server.on_chat(stream([20.0]))
    send(chat, "hi")
    until(lambda: len(server.chats()) == 1)
    chat.get_by_role("button", name="Stop").click()
    expect(answers(chat)).to_have_count(0)
    expect(chat.get_by_role("article", name="You")).to_have_count(1)


def test_a_full_queue_is_waited_for(chat: Page, server: ScriptedServer) -> None:
    full = Reply.error(429, "8 requests are waiting already", "queue_full", Retry_After="1")
    server.on_chat(full, answer("at last"))
    send(chat, "hi")
    expect(answers(chat)).to_contain_text("at last")
    assert noticed(chat, "8 requests are waiting already. Trying again in 1 s")
    expect(chat.get_by_role("article", name="You")).to_have_count(1)
    assert len(server.chats()) == 2


@pytest.mark.parametrize("status", [502, 503])
def test_a_server_that_says_when_to_try_again_is_asked_again(
    chat: Page, server: ScriptedServer, status: int
) -> None:
    gone = Reply.error(status, "the server behind is gone", "upstream_unreachable", Retry_After="1")
    server.on_chat(gone, answer("it is back"))
    send(chat, "hi")
    expect(answers(chat)).to_contain_text("it is back")
    assert noticed(chat, "the server behind is gone. Trying again in 1 s")
    expect(chat.get_by_role("article", name="You")).to_have_count(1)


def test_waiting_for_the_queue_can_be_given_up(chat: Page, server: ScriptedServer) -> None:
    server.on_chat(Reply.error(429, "full", "queue_full", Retry_After="30"))
    send(chat, "hi")
    expect(chat.get_by_text("full. Trying again in")).to_be_visible()
    chat.get_by_role("button", name="Stop").click()
    expect(chat.get_by_text("Trying again")).to_have_count(0)
    assert len(server.chats()) == 1


def test_what_does_not_fit_goes_back_to_the_composer(chat: Page, server: ScriptedServer) -> None:
    words = "this model's maximum context length is 100 tokens, the prompt has 120"
    server.on_chat(Reply.error(400, words, "context_length_exceeded"), answer("fine"))
    send(chat, "much too long")
    alert = chat.get_by_role("alert")
    expect(alert).to_contain_text("100 tokens, the prompt has 120")
    expect(composer(chat)).to_have_value("much too long")
    expect(chat.get_by_role("article", name="You")).to_have_count(0)
    alert.get_by_role("button", name="new conversation").click()
    expect(composer(chat)).to_have_value("much too long")
    composer(chat).fill("short")
    composer(chat).press("Enter")
    expect(answers(chat)).to_contain_text("fine")
    assert said(server) == [("user", "short")]


def test_the_oldest_messages_are_left_out_when_asked_to(chat: Page, server: ScriptedServer) -> None:
    too_long = Reply.error(400, "the context is 100 tokens", "context_length_exceeded")
    server.on_chat(answer("one"), answer("two"), answer("three"), too_long, answer("four"))
    for number, text in enumerate(("a", "b", "c"), 1):
        send(chat, text)
        expect(answers(chat)).to_have_count(number)
        expect(answers(chat).last.locator("[data-figure=tokens]")).to_be_visible()
    send(chat, "d")
    chat.get_by_role("alert").get_by_role("button", name="Leave out the oldest").click()
    expect(answers(chat).last).to_contain_text("four")
    assert said(server) == [("user", "c"), ("assistant", "three"), ("user", "d")]
    expect(chat.get_by_role("note").filter(has_text="no longer sent")).to_be_visible()
    expect(answers(chat)).to_have_count(4)
    expect(composer(chat)).to_have_value("")
    until(lambda: '"omittedTo":"' in stored(chat))
    chat.reload()
    expect(chat.get_by_role("note").filter(has_text="no longer sent")).to_be_visible()


def test_a_new_question_is_seen_by_who_was_reading_far_above(
    chat: Page, server: ScriptedServer
) -> None:
    server.on_chat(answer("long " * 2000), answer("short"))
    send(chat, "first")
    log = chat.get_by_role("log")
    expect(answers(chat).locator("[data-figure=tokens]")).to_be_visible()
    log.evaluate("log => log.scrollTo(0, 0)")
    expect(chat.get_by_role("button", name="Jump to latest")).to_be_visible()
    send(chat, "second")
    expect(answers(chat).last).to_contain_text("short")
    expect(answers(chat).last).to_be_in_viewport()
    expect(chat.get_by_role("button", name="Jump to latest")).to_have_count(0)


def test_the_end_of_an_answer_stays_in_sight_when_something_comes_below_it(
    chat: Page, server: ScriptedServer
) -> None:
    server.on_chat(answer("long " * 2000), Reply.error(400, "too much of it", "x"))
    send(chat, "first")
    end = answers(chat).last.locator("[data-figure=tokens]")
    expect(end).to_be_in_viewport(ratio=1)
    send(chat, "second")
    expect(chat.get_by_role("alert")).to_contain_text("too much of it")
    expect(chat.get_by_role("article", name="You")).to_have_count(1)
    expect(end).to_be_in_viewport(ratio=1)
    composer(chat).fill("many\nlines\n" * 10)
    expect(end).to_be_in_viewport(ratio=1)


@pytest.mark.parametrize("status", [400, 401, 403, 404, 500, 503])
def test_a_refusal_is_shown_in_the_server_s_words(
    chat: Page, server: ScriptedServer, status: int
) -> None:
    server.on_chat(Reply.error(status, f"because of {status}", "x"))
    send(chat, "hi")
    expect(chat.get_by_role("alert")).to_contain_text(f"because of {status}")
    expect(chat.get_by_role("alert")).to_contain_text("req_scripted")
    expect(composer(chat)).to_have_value("hi")


def test_a_server_with_the_older_limit_is_asked_once_more(
    chat: Page, server: ScriptedServer
) -> None:
    server.on_chat(Reply.error(400, "unknown field max_completion_tokens"), answer("old"))
    send(chat, "hi")
    expect(answers(chat)).to_contain_text("old")
    assert server.chats()[1].body["max_tokens"] == 4096
    assert "max_completion_tokens" not in server.chats()[1].body


def test_enter_sends_but_not_while_characters_are_composed(
    chat: Page, server: ScriptedServer
) -> None:
    field = composer(chat)
    field.fill("a")
    field.dispatch_event("keydown", {"key": "Enter", "isComposing": True})
    field.press("Shift+Enter")
    field.press_sequentially("b")
    assert server.chats() == []
    field.press("Enter")
    until(lambda: len(server.chats()) == 1)
    assert said(server) == [("user", "a\nb")]


def test_versions_stay_reachable_and_the_request_follows_the_one_shown(
    chat: Page, server: ScriptedServer
) -> None:
    server.on_chat(answer("first"), answer("second"), answer("third"), answer("fourth"))
    send(chat, "hi")
    expect(answers(chat)).to_contain_text("first")
    chat.get_by_role("button", name="Regenerate").click()
    expect(answers(chat)).to_contain_text("second")
    expect(answers(chat)).to_contain_text("2/2")
    chat.get_by_role("button", name="Previous version").click()
    expect(answers(chat)).to_contain_text("first")
    send(chat, "more")
    expect(answers(chat)).to_have_count(2)
    assert said(server) == [("user", "hi"), ("assistant", "first"), ("user", "more")]
    mine = chat.get_by_role("article", name="You").first
    mine.hover()
    mine.get_by_role("button", name="Edit").click()
    chat.get_by_role("textbox", name="Edit").fill("hello")
    chat.get_by_role("textbox", name="Edit").press("Enter")
    expect(answers(chat)).to_contain_text("fourth")
    assert said(server) == [("user", "hello")]
    chat.get_by_role("button", name="Previous version").click()
    expect(answers(chat)).to_have_count(2)
    expect(answers(chat).last).to_contain_text("third")


def test_conversations_have_slots_of_their_own(page: Page, server: ScriptedServer) -> None:
    server.routes["GET /health"] = lambda _: Reply.of_json(health(kv_slots=4))
    page.goto(server.url)
    expect(page.get_by_text("Slot 4")).to_be_visible()
    for text in ("one", "two"):
        page.get_by_role("link", name="New chat").click()
        expect(answers(page)).to_have_count(0)  # nor is the composer the one before
        send(page, text)
        expect(answers(page)).to_have_count(1)
    send(page, "two again")
    expect(answers(page)).to_have_count(2)
    first, second, third = [seen.body["cache_slot"] for seen in server.chats()]
    assert first == 0
    assert second == third != first
    server.routes["GET /health"] = lambda _: Reply.of_json(health(kv_slots=1))
    expect(page.get_by_text("Slot 4")).to_have_count(0)
    send(page, "fewer")
    expect(answers(page)).to_have_count(3)
    assert server.chats()[3].body["cache_slot"] == 0


def test_what_a_model_writes_never_becomes_a_part_of_the_page(
    chat: Page, server: ScriptedServer
) -> None:
    bad = (
        "<script>window.hit = 1</script> <img src=x onerror='window.hit = 1'> "
        "[a](javascript:window.hit=1) <a href='javascript:1'>b</a> end"
    )
    server.on_chat(answer(bad))
    send(chat, bad)
    expect(answers(chat)).to_contain_text("end")
    expect(answers(chat).locator("[data-figure=tokens]")).to_be_visible()
    for _ in range(2):
        expect(answers(chat)).to_contain_text("<script>window.hit = 1</script>")
        assert chat.evaluate("window.hit") is None
        shown = chat.locator("main")
        assert shown.locator("script, img, a[href^=javascript]").count() == 0
        chat.reload()
        expect(answers(chat)).to_contain_text("end")


def test_code_is_a_block_while_it_grows_and_copies_exactly(
    chat: Page, server: ScriptedServer
) -> None:
    source = 'def f(x):\n\treturn {"a": x}  # \u00e8\n'
    text = f"Look:\n\n```python\n{source}```\n\nDone."
    cut = text.index("return")
    seen = threading.Event()
    rest = [delta("stop", content=text[cut:]), DONE]
    server.on_chat(stream(held([delta(content=text[:cut])], seen, rest)))
    chat.evaluate("window.isSecureContext = false")
    chat.evaluate(
        "document.addEventListener('copy', () => { window.copied = String(getSelection()) })"
    )
    send(chat, "hi")
    block = chat.get_by_role("figure")
    expect(block).to_contain_text("def f(x):")
    expect(chat.get_by_role("button", name="Stop")).to_be_visible()
    seen.set()
    expect(answers(chat)).to_contain_text("Done.")
    chat.context.grant_permissions(["clipboard-read", "clipboard-write"])
    block.get_by_role("button", name="Copy code").click()
    expect(block.get_by_role("button", name="Copied")).to_be_visible()
    assert chat.evaluate("navigator.clipboard.readText()") == source.rstrip("\n")


def test_everything_is_there_after_a_reload(chat: Page, server: ScriptedServer) -> None:
    server.on_chat(answer("one"), answer("two"), stream([delta(content="three and"), 20.0]))
    for number, text in enumerate(("a", "b"), 1):
        send(chat, text)
        expect(answers(chat)).to_have_count(number)
        expect(answers(chat).last.locator("[data-figure=tokens]")).to_be_visible()
    send(chat, "c")
    expect(answers(chat)).to_have_count(3)
    expect(answers(chat).last).to_contain_text("three and")
    composer(chat).fill("a draft")
    until(lambda: "a draft" in stored(chat) and "three and" in stored(chat))
    chat.reload()
    expect(answers(chat)).to_have_count(3)
    expect(answers(chat).last).to_contain_text("three and")
    expect(answers(chat).last).to_contain_text("was cut off")
    expect(composer(chat)).to_have_value("a draft")
    expect(chat.get_by_role("link", name="a", exact=True)).to_be_visible()


def test_a_text_file_becomes_a_part_of_the_message(
    chat: Page, server: ScriptedServer, tmp_path: Path
) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("some ```notes```\n")
    chat.locator("input[type=file]").first.set_input_files(file)
    expect(chat.get_by_text("notes.txt")).to_be_visible()
    send(chat, "read it")
    expect(chat.get_by_role("article", name="You")).to_contain_text("notes.txt")
    until(lambda: len(server.chats()) == 1)
    ((_, content),) = said(server)
    assert content == "File: notes.txt\n````\nsome ```notes```\n\n````\n\nread it"


def test_conversations_survive_export_deletion_and_import(
    chat: Page, server: ScriptedServer, tmp_path: Path
) -> None:
    send(chat, "keep me")
    expect(answers(chat).locator("[data-figure=tokens]")).to_be_visible()
    address = chat.url
    chat.goto(f"{server.url}/settings")
    with chat.expect_download() as downloading:
        chat.get_by_role("button", name="Export all").click()
    file = tmp_path / "all.json"
    downloading.value.save_as(file)
    chat.get_by_role("button", name="Delete all").click()
    chat.get_by_role("dialog").get_by_role("button", name="Delete all").click()
    expect(chat.get_by_text("No conversations yet")).to_be_visible()
    chat.locator("input[type=file]").set_input_files(file)
    expect(chat.get_by_text("1 conversation imported")).to_be_visible()
    with chat.expect_download() as again:
        chat.get_by_role("button", name="Export all").click()
    second = tmp_path / "again.json"
    again.value.save_as(second)
    assert json.loads(second.read_text()) == json.loads(file.read_text())
    chat.goto(address)
    expect(answers(chat)).to_contain_text("Hello there.")


def test_conversations_are_found_renamed_and_deleted_with_a_way_back(
    chat: Page, server: ScriptedServer
) -> None:
    server.on_chat(answer("about zebras"), answer("about gnus"))
    for text in ("stripes?", "horns?"):
        chat.get_by_role("link", name="New chat").click()
        expect(answers(chat)).to_have_count(0)  # nor is the composer the one before
        send(chat, text)
        expect(answers(chat).locator("[data-figure=tokens]")).to_be_visible()
    until(lambda: "about zebras" in stored(chat) and "about gnus" in stored(chat))
    chat.keyboard.press("Control+k")
    search = chat.get_by_role("searchbox", name="Search conversations")
    expect(search).to_be_focused()
    search.fill("ZEBRAS")
    listed = chat.get_by_role("region", name="Conversations").get_by_role("link")
    expect(listed).to_have_text(["stripes?"])
    search.fill("")
    expect(listed).to_have_count(2)
    chat.get_by_role("button", name="More about horns?").click()
    chat.get_by_role("menuitem", name="Rename").click()
    chat.get_by_role("textbox", name="Title").fill("Antlers")
    chat.get_by_role("textbox", name="Title").press("Enter")
    expect(listed).to_have_text(["Antlers", "stripes?"])
    chat.get_by_role("button", name="More about Antlers").click()
    chat.get_by_role("menuitem", name="Delete").click()
    expect(listed).to_have_text(["stripes?"])
    chat.get_by_role("button", name="Undo").click()
    expect(listed).to_have_text(["Antlers", "stripes?"])
