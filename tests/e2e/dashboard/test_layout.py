"""Widths, languages, keys and accessibility of every page."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.dashboard.conftest import ROOT, OpenContext
from tests.e2e.dashboard.reading import answers, composer, send
from tests.fakes.scripted_server import Reply, ScriptedServer, answer, delta, stream

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

PATHS = re.findall(r"paths: \['([^']+)'", (ROOT / "web/src/app/pages.ts").read_text("utf-8"))
AXE = ROOT / "web" / "node_modules" / "axe-core" / "axe.min.js"
LONG = "A [link](https://example.com), `code`, **bold**.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n"
CODE = "```python\nprint('" + "long " * 60 + "')\n```"
TURN = {
    "wall_s": 2.0,
    "prompt_tokens": 9,
    "completion_tokens": 20,
    "expert_disk_s": 0.5,
    "expert_wait_s": 0.4,
    "expert_matmul_s": 0.8,
    "attention_s": 0.3,
    "lm_head_s": 0.2,
    "forwards": 20,
}


@pytest.fixture
def busy(server: ScriptedServer) -> ScriptedServer:
    """A server with figures of everything, and a long answer."""
    server.routes["GET /profile"] = lambda _: Reply.of_json({"seq": 2, "turns": [TURN, TURN]})
    server.routes["GET /experts"] = lambda _: Reply.of_json(
        {
            "rows": 2,
            "cols": 8,
            "map": "0041983f" * 4,
            "hits": "0505",
            "seq": 1,
            "gpus": [{"used_gb": 20.0, "total_gb": 24.0, "experts": 10}],
        }
    )
    server.on_chat(answer(LONG + CODE))
    return server


def test_the_pages_are_known() -> None:
    assert "/" in PATHS
    assert "/settings" in PATHS


@pytest.mark.parametrize(("width", "height"), [(390, 844), (360, 640), (768, 1024), (1440, 900)])
def test_no_page_scrolls_sideways(
    open_context: OpenContext, busy: ScriptedServer, width: int, height: int
) -> None:
    size = {"width": width, "height": height}
    page = open_context(viewport=size, has_touch=width < 500, is_mobile=width < 500).new_page()
    page.goto(busy.url)
    send(page, "a question " * 30)
    expect(answers(page)).to_contain_text("bold")
    paths = [*PATHS, page.url.removeprefix(busy.url)]
    for path in paths:
        page.goto(busy.url + path)
        expect(page.locator("main")).to_be_visible()
        page.wait_for_timeout(150)
        wide = page.evaluate(
            """[document, ...document.querySelectorAll('main')]
              .map((node) => node.scrollingElement ?? node)
              .filter((node) => node.scrollWidth > node.clientWidth)
              .map((node) => node.tagName)"""
        )
        assert wide == [], path
    expect(composer(page)).to_be_in_viewport()


def test_on_a_phone_everything_is_large_enough_to_press(
    open_context: OpenContext, busy: ScriptedServer
) -> None:
    size = {"width": 390, "height": 844}
    page = open_context(viewport=size, has_touch=True, is_mobile=True).new_page()
    page.goto(busy.url)
    send(page, "hi")
    expect(answers(page)).to_contain_text("bold")
    for path in [page.url.removeprefix(busy.url), *PATHS]:
        page.goto(busy.url + path)
        page.wait_for_timeout(200)
        small = page.evaluate(
            """[...document.querySelectorAll('button, select, nav a, input:not([type=range])')]
              .filter((node) => node.checkVisibility() && node.getBoundingClientRect().width > 1)
              .filter((node) => node.type !== 'checkbox' && node.type !== 'file')
              .filter((node) => node.getBoundingClientRect().height < 43.5)
              .map((node) => node.outerHTML.slice(0, 120))"""
        )
        assert small == [], path


@pytest.mark.parametrize("width", [390, 1440])
def test_no_text_is_too_small_to_read(
    open_context: OpenContext, busy: ScriptedServer, width: int
) -> None:
    page = open_context(viewport={"width": width, "height": 900}).new_page()
    page.goto(busy.url)
    send(page, "hi")
    expect(answers(page).locator("[data-figure=tokens]")).to_be_visible()
    for path in [page.url.removeprefix(busy.url), *PATHS]:
        page.goto(busy.url + path)
        expect(page.locator("main h1").first).to_be_attached()
        page.wait_for_timeout(200)
        small = page.evaluate(
            """[...document.querySelectorAll('body *')]
              .filter((node) => [...node.childNodes].some((part) => part.nodeType === 3))
              .filter((node) => node.checkVisibility())
              .filter((node) => parseFloat(getComputedStyle(node).fontSize) < 12)
              .map((node) => `${getComputedStyle(node).fontSize} ${node.outerHTML.slice(0, 90)}`)"""
        )
        assert small == [], path


def test_on_a_phone_both_sides_are_drawers(open_context: OpenContext, busy: ScriptedServer) -> None:
    size = {"width": 390, "height": 844}
    page = open_context(viewport=size, has_touch=True, is_mobile=True).new_page()
    page.goto(busy.url)
    expect(page.get_by_role("complementary", name="Runtime")).to_have_count(0)
    page.get_by_role("button", name="Show runtime").click()
    expect(page.get_by_role("complementary", name="Runtime")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("complementary", name="Runtime")).to_have_count(0)
    send(page, "hi")
    expect(answers(page)).to_contain_text("bold")
    tab = page.get_by_role("navigation").get_by_role("link", name="Chat")
    expect(tab).to_have_attribute("aria-current", "page")
    page.get_by_role("button", name="Open menu").click()
    page.get_by_role("dialog").get_by_role("link", name="Settings").click()
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("heading", name="Settings")).to_be_visible()


def test_with_the_keyboard_of_a_phone_open_the_answer_can_be_stopped(
    open_context: OpenContext, busy: ScriptedServer
) -> None:
    busy.on_chat(stream([delta(content="Some words "), 20.0]))
    # The keyboard takes its height from the page, which asks for that.
    size = {"width": 360, "height": 340}
    page = open_context(viewport=size, has_touch=True, is_mobile=True).new_page()
    page.goto(busy.url)
    expect(composer(page)).to_be_in_viewport(ratio=1)
    send(page, "hi")
    expect(answers(page)).to_contain_text("Some words")
    expect(composer(page)).to_be_in_viewport(ratio=1)
    expect(page.get_by_role("button", name="Stop")).to_be_in_viewport(ratio=1)
    assert "interactive-widget=resizes-content" in page.locator("meta[name=viewport]").evaluate(
        "meta => meta.content"
    )


def serious_issues(page: Page) -> list[str]:
    """Return what axe finds serious or worse; read into the page past its content policy."""
    page.evaluate(AXE.read_text("utf-8") + "; 0")
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")
    return [
        f"{issue['id']}: {node['html'][:160]} {node.get('failureSummary', '')[:200]}"
        for issue in found["violations"]
        if issue["impact"] in {"serious", "critical"}
        for node in issue["nodes"]
    ]


@pytest.mark.parametrize("theme", ["dark", "light"])
@pytest.mark.parametrize("width", [390, 1440])
def test_axe_finds_nothing_serious(
    open_context: OpenContext, busy: ScriptedServer, theme: str, width: int
) -> None:
    if not AXE.is_file():
        pytest.skip("axe-core is not installed; `make web` fetches it")
    size = {"width": width, "height": 900}
    page = open_context(viewport=size, color_scheme=theme, reduced_motion="reduce").new_page()
    page.goto(busy.url)
    send(page, "hi")
    expect(answers(page)).to_contain_text("bold")
    expect(answers(page).locator("[data-figure=tokens]")).to_be_visible()
    for path in [page.url.removeprefix(busy.url), *PATHS]:
        page.goto(busy.url + path)
        expect(page.locator("main")).to_be_visible()
        page.wait_for_timeout(300)
        assert serious_issues(page) == [], path
    if width < 500:
        page.get_by_role("button", name="Show runtime").click()
        page.wait_for_timeout(300)
        assert serious_issues(page) == []


@pytest.mark.parametrize(("locale", "word"), [("en-GB", "Settings"), ("it-IT", "Impostazioni")])
def test_the_page_speaks_the_language_of_the_browser(
    open_context: OpenContext, busy: ScriptedServer, locale: str, word: str
) -> None:
    page = open_context(locale=locale).new_page()
    page.goto(f"{busy.url}/settings")
    expect(page.get_by_role("heading", name=word)).to_be_visible()
    expect(page.locator("html")).to_have_attribute("lang", locale[:2])
    files = (ROOT / "web/src/lib/i18n/locales/en").glob("*.json")
    texts = [item for file in files for item in json.loads(file.read_text("utf-8")).items()]
    raw = [f"{group}.{key}" for group, keys in texts if isinstance(keys, dict) for key in keys]
    for path in PATHS:
        page.goto(busy.url + path)
        page.wait_for_timeout(200)
        shown = page.locator("body").inner_text()
        assert [key for key in raw if key in shown] == []


def test_the_language_and_the_theme_are_chosen_and_kept(page: Page, busy: ScriptedServer) -> None:
    page.goto(f"{busy.url}/settings")
    page.get_by_label("Language").select_option("it")
    page.get_by_label("Tema", exact=True).select_option("light")
    page.reload()
    expect(page.get_by_role("heading", name="Impostazioni")).to_be_visible()
    assert page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "light"


def test_keys_lead_everywhere(page: Page, busy: ScriptedServer) -> None:
    page.goto(busy.url)
    expect(composer(page)).to_be_focused()
    page.keyboard.press(f"Alt+{PATHS.index('/settings') + 1}")
    expect(page.get_by_role("heading", name="Settings")).to_be_visible()
    page.keyboard.press("Alt+1")
    expect(composer(page)).to_be_visible()
    page.keyboard.press("Control+b")
    expect(page.get_by_role("searchbox")).to_have_count(0)
    page.keyboard.press("Control+k")
    expect(page.get_by_role("searchbox")).to_be_focused()
    page.keyboard.press("Control+/")
    expect(page.get_by_role("dialog", name="Keyboard")).to_be_visible()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)


def test_growing_answers_are_read_out_sentence_by_sentence(
    page: Page, busy: ScriptedServer
) -> None:
    busy.on_chat(answer("One sentence here. And another one that is long.", pause_s=0.4))
    page.add_init_script(
        """addEventListener('DOMContentLoaded', () => {
          window.spoken = [];
          new MutationObserver(() => {
            const text = document.querySelector('main [aria-live=polite]')?.textContent ?? '';
            if (text !== '' && text !== window.spoken.at(-1)) window.spoken.push(text);
          }).observe(document, { subtree: true, childList: true, characterData: true });
        })"""
    )
    page.goto(busy.url)
    send(page, "hi")
    spoken = page.locator("main [aria-live=polite]")
    expect(spoken).to_contain_text("And another one that is long.")
    assert (
        "".join(page.evaluate("window.spoken"))
        == "One sentence here. And another one that is long."
    )


def test_first_load_stays_small(page: Page, server: ScriptedServer, bundle: Path) -> None:
    fetched: set[str] = set()
    page.on("request", lambda request: fetched.add(request.url.removeprefix(f"{server.url}/")))
    page.goto(server.url)
    expect(composer(page)).to_be_visible()
    page.wait_for_load_state("networkidle")
    names = {name for name in fetched if re.fullmatch(r"assets/.+\.(js|css)", name)}
    assert any("chat-page" in name for name in names)
    total = sum(len(gzip.compress((bundle / name).read_bytes())) for name in names)
    assert total <= 250_000, f"{total} bytes gzip on first load"


def test_the_frame_is_seen_before_the_page_runs(page: Page, server: ScriptedServer) -> None:
    page.route(re.compile(r"/assets/main-.*\.js"), lambda route: route.abort())
    page.goto(f"{server.url}/brain")
    failed = page.get_by_role("alert")
    expect(failed).to_have_text("The dashboard could not be loaded. Reload the page.")
    paints = "performance.getEntriesByName('first-contentful-paint').length"
    assert page.evaluate(paints) == 1
    page.unroute(re.compile(r"/assets/main-.*\.js"))
    page.reload()
    expect(page.get_by_role("heading", name="Brain")).to_be_visible()
    assert page.locator(".boot").count() == 0


@pytest.mark.parametrize(("width", "height"), [(390, 844), (1440, 900)])
def test_the_first_words_of_a_page_stay_where_the_frame_had_them(
    open_context: OpenContext, busy: ScriptedServer, width: int, height: int
) -> None:
    page = open_context(viewport={"width": width, "height": height}).new_page()
    page.add_init_script(
        """window.heads = [];
        const look = () => {
          const title = document.querySelector('.boot-page h1, main header h1, main h2');
          const intro = title?.nextElementSibling;
          if (intro) {
            const boxes = [title, intro].map((node) => {
              const { x, y, height } = node.getBoundingClientRect();
              return [node.textContent, x, y, height];
            });
            const seen = JSON.stringify(boxes);
            if (window.heads.at(-1) !== seen) window.heads.push(seen);
          }
          requestAnimationFrame(look);
        };
        look();"""
    )
    for path in PATHS:
        page.goto(busy.url + path)
        expect(page.locator("main")).to_be_visible()
        expect(page.locator(".boot-page")).to_have_count(0)
        page.wait_for_timeout(300)
        assert len(page.evaluate("heads")) == 1, path


def test_on_a_phone_nothing_moves_while_a_page_loads(
    open_context: OpenContext, busy: ScriptedServer
) -> None:
    page = open_context(viewport={"width": 390, "height": 844}).new_page()
    page.add_init_script(
        """window.moved = 0;
        new PerformanceObserver((list) => {
          for (const { value } of list.getEntries()) window.moved += value;
        }).observe({ type: 'layout-shift', buffered: true });"""
    )
    for path in PATHS:
        page.goto(busy.url + path)
        expect(page.locator("main")).to_be_visible()
        page.wait_for_timeout(600)
        assert page.evaluate("moved") < 0.02, path
