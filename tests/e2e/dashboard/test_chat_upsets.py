"""The chat when things go wrong around it: full storage, other tabs, deletions, odd answers."""

from __future__ import annotations

import json

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.dashboard.reading import answers, composer, send, stored, until
from tests.fakes.scripted_server import (
    DONE,
    Reply,
    ScriptedServer,
    answer,
    delta,
    frame,
    stream,
    usage,
)

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

FULL_STORAGE = """
const put = IDBObjectStore.prototype.put;
IDBObjectStore.prototype.put = function (...values) {
  if (window.isFull) throw new DOMException('full', 'QuotaExceededError');
  return put.apply(this, values);
};
"""
DROP = """([where, name, content]) => {
  const data = new DataTransfer();
  data.items.add(new File([new Uint8Array(content)], name));
  const target = document.querySelector(where);
  return ['dragover', 'drop'].map((kind) => {
    const event = new DragEvent(kind, { bubbles: true, cancelable: true, dataTransfer: data });
    target.dispatchEvent(event);
    return event.defaultPrevented;
  });
}"""
SLOW: list[bytes | float] = [part for n in range(200) for part in (delta(content=f"w{n} "), 0.05)]


@pytest.fixture
def chat(page: Page, server: ScriptedServer) -> Page:
    page.add_init_script(FULL_STORAGE)
    page.goto(server.url)
    expect(page.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    return page


def ask(page: Page, text: str, count: int) -> None:
    """Send and wait for the answer's end."""
    send(page, text)
    expect(answers(page)).to_have_count(count)
    expect(answers(page).last.locator("[data-figure=tokens]")).to_be_visible()


def test_what_found_no_room_is_written_once_there_is(chat: Page) -> None:
    ask(chat, "before", 1)
    until(lambda: "before" in stored(chat))
    chat.evaluate("window.isFull = true")
    ask(chat, "while full", 2)
    note = chat.get_by_text("This browser keeps no data")
    expect(note).to_be_visible()
    chat.evaluate("window.isFull = false")
    ask(chat, "after", 3)
    expect(note).to_have_count(0)
    until(lambda: "after" in stored(chat))
    chat.reload()
    expect(chat.get_by_role("article", name="You")).to_have_text(["before", "while full", "after"])


def test_all_that_is_deleted_while_an_answer_grows_stays_deleted(
    chat: Page, server: ScriptedServer
) -> None:
    server.on_chat(stream(SLOW))
    send(chat, "a secret")
    expect(answers(chat)).to_contain_text("w2")
    chat.get_by_role("navigation").get_by_role("link", name="Settings").click()
    chat.get_by_role("button", name="Delete all").click()
    chat.get_by_role("dialog").get_by_role("button", name="Delete all").click()
    until(lambda: server.chats()[0].left_at is not None)
    chat.wait_for_timeout(1000)  # longer than it waits before it writes
    assert "a secret" not in stored(chat)
    assert "w1" not in stored(chat)


def test_an_edited_message_waits_until_the_answer_is_there(
    chat: Page, server: ScriptedServer
) -> None:
    ask(chat, "one", 1)
    first = chat.get_by_role("article", name="You").first
    first.hover()
    first.get_by_role("button", name="Edit").click()
    field = chat.get_by_role("textbox", name="Edit")
    field.fill("one, changed")
    server.on_chat(stream([delta(content="slow "), 1.5, delta("stop"), usage(5, 1), DONE]))
    send(chat, "two")
    expect(answers(chat).last).to_contain_text("slow")
    field.press("Enter")
    expect(field).to_have_value("one, changed")
    expect(answers(chat).last.locator("[data-figure=tokens]")).to_be_visible()
    server.on_chat(answer("to the changed one"))
    field.press("Enter")
    expect(answers(chat).last).to_contain_text("to the changed one")


def test_a_message_that_comes_back_takes_nothing_away(chat: Page, server: ScriptedServer) -> None:
    ask(chat, "one", 1)
    ask(chat, "two", 2)
    last = chat.get_by_role("article", name="You").last
    last.hover()
    last.get_by_role("button", name="Delete").click()
    expect(answers(chat)).to_have_count(1)
    server.on_chat(answer("said meanwhile"))
    ask(chat, "three", 2)
    chat.get_by_role("button", name="Undo").click()
    expect(chat.get_by_role("article", name="You").last).to_contain_text("two")
    chat.get_by_role("button", name="Next version").click()
    expect(answers(chat).last).to_contain_text("said meanwhile")


def test_two_tabs_of_one_conversation_end_up_alike(chat: Page, server: ScriptedServer) -> None:
    ask(chat, "hi", 1)
    until(lambda: "Hello there." in stored(chat))
    other = chat.context.new_page()
    other.goto(chat.url)
    expect(answers(other)).to_have_count(1)
    end = [delta("stop"), usage(5, 1), DONE]
    server.on_chat(
        stream([delta(content="to the first "), 2.5, *end]), stream([delta(content="other"), *end])
    )
    send(chat, "first tab")
    expect(answers(other)).to_have_count(2)
    ask(other, "second tab", 3)
    expect(answers(chat)).to_have_count(3)
    said = ["hi", "first tab", "second tab"]
    expect(chat.get_by_role("article", name="You")).to_have_text(said)
    expect(other.get_by_role("article", name="You")).to_have_text(said)


def test_an_answer_that_a_closed_tab_left_is_marked_in_the_others(
    chat: Page, server: ScriptedServer
) -> None:
    server.on_chat(stream(SLOW))
    send(chat, "hi")
    expect(answers(chat)).to_contain_text("w2")
    until(lambda: "w2" in stored(chat))
    other = chat.context.new_page()
    other.goto(chat.url)
    expect(answers(other)).to_contain_text("w2")
    chat.reload()
    expect(answers(chat)).to_contain_text("was cut off")
    expect(answers(other)).to_contain_text("was cut off")


def test_files_are_taken_wherever_they_are_dropped(chat: Page, server: ScriptedServer) -> None:
    expect(composer(chat)).to_be_visible()
    assert chat.evaluate(DROP, ["form", "notes.txt", list(b"some notes")]) == [True, True]
    expect(chat.locator("form")).to_contain_text("notes.txt")
    assert chat.evaluate(DROP, ["main", "more.txt", list(b"more")]) == [True, True]
    expect(chat.locator("form")).to_contain_text("more.txt")
    chat.evaluate(DROP, ["main", "picture.png", [0x89, 0x50, 0, 0xFF]])
    expect(chat.get_by_text("picture.png is not a text file")).to_be_visible()
    ask(chat, "read them", 1)
    content = server.chats()[0].body["messages"][0]["content"]
    assert "File: notes.txt\n```\nsome notes\n```" in content
    assert "File: more.txt" in content
    assert "picture.png" not in content
    expect(chat.get_by_role("article", name="You")).to_contain_text("notes.txt")


def test_an_answer_without_a_word_is_told(chat: Page, server: ScriptedServer) -> None:
    failed = frame({"error": {"message": "the engine ended", "code": "engine_error"}})
    server.on_chat(stream([failed]), stream([DONE]), answer("words"))
    for words in ("the engine ended", "sent no answer"):
        send(chat, "hi")
        expect(chat.get_by_role("alert")).to_contain_text(words)
        expect(composer(chat)).to_have_value("hi")
    ask(chat, "hi", 1)
    expect(chat.get_by_role("alert")).to_have_count(0)


def test_a_key_that_is_wanted_from_now_on_is_asked_for(chat: Page, server: ScriptedServer) -> None:
    locked = Reply.error(401, "a right API key is needed", "invalid_api_key")
    server.routes["GET /v1/models"] = lambda _: locked
    server.on_chat(locked)
    send(chat, "hi")
    expect(chat.get_by_text("This server wants an API key")).to_be_visible()
    expect(composer(chat)).to_have_value("hi")


def test_an_answer_that_cannot_be_laid_out_is_shown_as_it_was_written(
    chat: Page, server: ScriptedServer
) -> None:
    deep = ">" * 3000 + " deep"
    rule = "$\\rule{90000em}{90000em}$"
    server.on_chat(
        stream([delta(content=f"**One.**\n\n{rule}\n\nAnd:\n\n{deep}"), usage(1, 1), DONE])
    )
    ask(chat, "hi", 1)
    expect(answers(chat)).to_contain_text(deep)
    expect(answers(chat).locator("strong")).to_have_text("One.")
    expect(answers(chat).locator(".katex")).to_have_count(1)
    assert chat.get_by_role("log").evaluate("log => log.scrollHeight") < 10_000
    chat.reload()
    expect(answers(chat)).to_contain_text(deep)


def test_conversations_with_holes_and_circles_are_taken_in(
    chat: Page, server: ScriptedServer
) -> None:
    def message(name: str, parent: str | None) -> dict[str, object]:
        return {"id": name, "conversation": "c", "parent": parent, "role": "user", "content": name}

    entry = {"id": "c", "title": "holes", "created": 1, "updated": 1, "leaf": "gone"}
    data = {
        "format": "coli-conversations",
        "version": 1,
        "conversations": [entry],
        "messages": [message("egg", "hen"), message("hen", "egg")],
    }
    chat.goto(f"{server.url}/settings")
    file = {"name": "a.json", "mimeType": "application/json", "buffer": json.dumps(data).encode()}
    chat.locator("input[type=file]").set_input_files(file)  # type: ignore[arg-type]
    expect(chat.get_by_text("1 conversation imported")).to_be_visible()
    chat.get_by_role("link", name="holes", exact=True).click()
    expect(chat.get_by_role("article", name="You")).to_have_count(2)
    ask(chat, "chicken", 1)
    last = chat.get_by_role("article", name="You").first
    last.hover()
    last.get_by_role("button", name="Delete").click()
    expect(chat.get_by_role("article", name="You")).to_have_count(0)
