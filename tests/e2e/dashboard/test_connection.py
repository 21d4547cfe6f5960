"""How the page finds its server, and what it says while there is none."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, Request, expect

from tests.e2e.dashboard.conftest import OpenContext
from tests.e2e.dashboard.reading import composer, send, stored, until
from tests.fakes.scripted_server import Reply, ScriptedServer, Seen, answer, health, stream

pytestmark = [pytest.mark.e2e, pytest.mark.alone]
LOOPBACK = "http://127.0.0.1:8000/v1"


def seed_storage(context: BrowserContext, **values: str) -> None:
    """Put values into the small storage before a page starts, once."""
    entries = {name.replace("_", ".", 1): text for name, text in values.items()}
    context.add_init_script(
        f"""if (location.protocol === 'http:' && !sessionStorage.seeded) {{
          Object.assign(localStorage, {json.dumps(entries)});
          sessionStorage.seeded = 'yes';
        }}"""
    )


def settled(server: ScriptedServer) -> None:
    """Wait until what was on its way has arrived: nothing new for a second."""
    last = time.monotonic()
    count = -1
    while time.monotonic() - last < 1:
        if len(server.seen) != count:
            last, count = time.monotonic(), len(server.seen)
        time.sleep(0.05)


def address_field(page: Page) -> str:
    return page.get_by_label("Server address").input_value()


@pytest.mark.timed
def test_a_page_of_the_server_connects_to_it_at_once(page: Page, server: ScriptedServer) -> None:
    page.goto(server.url)
    expect(page.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    page.wait_for_timeout(500)
    assert len(server.to("GET /v1/models")) == 1
    assert len(server.to("GET /health")) == 1
    page.goto(f"{server.url}/settings")
    assert address_field(page) == f"{server.url}/v1"


def test_a_stored_loopback_address_gives_way_to_the_page_s_own(
    open_context: OpenContext, server: ScriptedServer
) -> None:
    context = open_context()
    seed_storage(context, colibri_baseUrl=LOOPBACK)
    page = context.new_page()
    page.goto(server.url)
    expect(page.get_by_role("status").filter(has_text="Connected")).to_be_visible()


def test_on_the_development_port_nothing_is_asked_before_the_reader_says_so(
    open_context: OpenContext, bundle: Path
) -> None:
    server = ScriptedServer(bundle)
    server.port = 5173
    try:
        server.start()
    except OSError:
        pytest.skip("hardware: port 5173 is taken on this machine")
    try:
        page = open_context().new_page()
        page.goto(f"{server.url}/settings")
        assert address_field(page) == LOOPBACK
        page.wait_for_timeout(1000)
        assert server.seen == []
        page.get_by_label("Server address").fill(f"{server.url}/v1")
        page.get_by_label("Server address").press("Enter")
        expect(page.get_by_role("status").filter(has_text="Connected").first).to_be_visible()
        assert len(server.to("GET /v1/models")) == 1
    finally:
        server.stop()


def test_a_key_travels_with_every_request_and_is_kept_nowhere(
    open_context: OpenContext, server: ScriptedServer
) -> None:
    key = "k-UNIQUE-123"
    context = open_context()
    seed_storage(context, colibri_apiKey="an-old-one")
    page = context.new_page()
    page.goto(f"{server.url}/settings")
    expect(page.get_by_role("status").filter(has_text="Connected").first).to_be_visible()
    page.get_by_label("API key").fill(key)
    server.seen.clear()
    page.get_by_role("button", name="Connect", exact=True).click()
    until(lambda: len(server.to("GET /health")) > 0)
    page.get_by_role("navigation").get_by_role("link", name="Chat").click()
    send(page, "hi")
    expect(page.get_by_text("Hello there.")).to_be_visible()
    assert {seen.headers.get("authorization") for seen in server.seen} == {f"Bearer {key}"}
    until(lambda: "Hello there." in stored(page))
    kept = stored(page)
    assert key not in kept
    assert "an-old-one" not in kept


def test_without_storage_the_page_works_as_long_as_it_is_open(
    open_context: OpenContext, server: ScriptedServer
) -> None:
    context = open_context()
    context.add_init_script(
        """for (const name of ['localStorage', 'sessionStorage', 'indexedDB'])
             Object.defineProperty(window, name, { get() { throw new DOMException('no') } })"""
    )
    page = context.new_page()
    page.goto(server.url)
    send(page, "hi")
    expect(page.get_by_text("Hello there.")).to_be_visible()
    expect(page.get_by_text("This browser keeps no data")).to_be_visible()


def test_a_locked_server_asks_for_the_key(page: Page, server: ScriptedServer) -> None:
    server.routes["GET /v1/models"] = lambda seen: (
        Reply.of_json({"data": [{"id": "scripted"}]})
        if seen.headers.get("authorization") == "Bearer right"
        else Reply.error(401, "a right API key is needed", "invalid_api_key")
    )
    server.routes["GET /health"] = lambda seen: Reply.of_json(
        health() if seen.headers.get("authorization") == "Bearer right" else {"status": "ok"}
    )
    page.goto(server.url)
    expect(page.get_by_role("alert")).to_contain_text("API key")
    page.get_by_role("link", name="Enter the key").click()
    page.get_by_label("API key").fill("right")
    page.get_by_label("API key").press("Enter")
    expect(page.get_by_role("status").filter(has_text="Connected").first).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.timed
def test_a_hidden_tab_asks_nothing_and_catches_up_when_shown(
    page: Page, server: ScriptedServer
) -> None:
    page.goto(server.url)
    expect(page.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    until(lambda: len(server.to("GET /profile")) > 0)
    show = """(isHidden) => {
      Object.defineProperty(document, 'hidden', { value: isHidden, configurable: true });
      document.dispatchEvent(new Event('visibilitychange'));
    }"""
    page.evaluate(show, True)
    settled(server)
    server.seen.clear()
    page.wait_for_timeout(30_000)
    assert [seen.path for seen in server.seen] == []
    page.evaluate(show, False)
    until(lambda: len(server.to("GET /health")) > 0, limit_s=1.0)


def test_with_another_kind_of_server_the_chat_works_alone(
    page: Page, server: ScriptedServer
) -> None:
    del server.routes["GET /health"]
    page.goto(server.url)
    expect(page.get_by_text("tells nothing about its runtime")).to_be_visible()
    send(page, "hi")
    expect(page.get_by_text("Hello there.")).to_be_visible()
    (chat,) = server.chats()
    unknown = {"cache_slot", "enable_thinking", "x_colibri_telemetry"}
    assert not unknown & chat.body.keys()
    assert server.to("GET /experts") == server.to("GET /profile") == []


def test_figures_are_pushed_where_the_server_pushes_them(
    page: Page, server: ScriptedServer
) -> None:
    def events(_: Seen) -> Reply:
        told = health(tiers={"vram": 7, "ram": 8, "disk": 9, "vram_gb": 0, "ram_gb": 0})
        text = json.dumps(told)
        return stream([f"event: health\ndata: {text}\n\n".encode(), 30.0])

    server.routes["GET /events"] = events
    page.goto(server.url)
    bar = page.get_by_role("img", name="7 experts in VRAM, 8 in RAM, 9 on disk")
    expect(bar).to_be_visible()
    page.wait_for_timeout(6000)
    assert len(server.to("GET /health")) == 1, "a stream makes polling needless"


def test_it_connects_by_itself_when_the_server_comes_up(
    open_context: OpenContext, server: ScriptedServer
) -> None:
    page = open_context().new_page()
    server.routes["GET /v1/models"] = lambda _: Reply.error(503, "loading", "engine_error")
    page.goto(server.url)
    expect(page.get_by_role("alert")).to_contain_text("being loaded")
    server.routes["GET /v1/models"] = lambda _: Reply.of_json({"data": [{"id": "late"}]})
    expect(page.get_by_role("status").filter(has_text="Connected")).to_be_visible()
    expect(page.get_by_role("alert")).to_have_count(0)


@pytest.mark.timed
def test_a_server_that_goes_and_comes_back_is_noticed_both_times(
    page: Page, server: ScriptedServer
) -> None:
    page.goto(server.url)
    expect(page.get_by_role("complementary", name="Runtime")).to_contain_text("ready")
    server.stop()
    began = time.monotonic()
    expect(page.get_by_role("alert")).to_contain_text("Cannot reach")
    assert time.monotonic() - began < 10
    panel = page.get_by_role("complementary", name="Runtime")
    expect(panel).to_have_attribute("data-stale", "true")
    expect(panel).to_contain_text("s ago")
    expect(panel).to_contain_text("Scheduler")
    server.start()
    expect(page.get_by_role("alert")).to_have_count(0, timeout=40_000)
    expect(panel).to_have_attribute("data-stale", "false")


def test_an_engine_that_ended_is_told_apart_from_a_server_that_did(
    page: Page, server: ScriptedServer
) -> None:
    page.goto(server.url)
    expect(page.get_by_role("complementary", name="Runtime")).to_contain_text("ready")
    ended = {"state": "starting", "restarts": 1, "last_end": "killed by SIGKILL", "rss_gb": 0}
    server.routes["GET /health"] = lambda _: Reply.of_json(
        health(status="loading", engine=ended), status=503
    )
    expect(page.get_by_role("alert")).to_contain_text("killed by SIGKILL")
    server.routes["GET /health"] = lambda _: Reply.of_json(health())
    expect(page.get_by_role("alert")).to_have_count(0)


def test_the_page_asks_no_other_host_for_anything(page: Page, server: ScriptedServer) -> None:
    asked: list[Request] = []
    page.on("request", lambda request: asked.append(request))  # noqa: PLW0108 - builtins cannot listen
    server.on_chat(answer("![a](https://example.com/a.png) [b](https://example.com/b)"))
    page.goto(server.url)
    send(page, "hi")
    expect(page.get_by_role("link", name="b", exact=True)).to_be_visible()
    page.goto(f"{server.url}/settings")
    expect(composer(page)).to_have_count(0)
    hosts = {request.url.split("/")[2] for request in asked if request.url.startswith("http")}
    assert hosts == {server.url.split("/")[2]}
