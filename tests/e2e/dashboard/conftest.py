"""The page in a real browser, against a scripted server or the real one."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from tests.fakes.scripted_server import ScriptedServer

ROOT = Path(__file__).parents[3]
BUNDLE = ROOT / "web" / "dist"
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--enable-unsafe-swiftshader",  # the galaxy is drawn by the processor
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
LIMIT_MS = 60_000  # other work may keep the machine busy
expect.set_options(timeout=LIMIT_MS)


@pytest.fixture(scope="session")
def bundle() -> Path:
    if not (BUNDLE / "index.html").is_file():
        pytest.skip("the dashboard is not built; build it with `make web`")
    return BUNDLE


# Not for the session: while it runs, its event loop is in the way of every other.
@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser")
    if path is None:
        pytest.skip("no chromium; install it with: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield started
        started.close()


@pytest.fixture
def server(bundle: Path) -> Iterator[ScriptedServer]:
    scripted = ScriptedServer(bundle)
    scripted.start()
    yield scripted
    scripted.stop()


OpenContext = Callable[..., BrowserContext]


@pytest.fixture
def open_context(browser: Browser) -> Iterator[OpenContext]:
    """Make browser contexts; a script error on any of their pages fails the test."""
    contexts: list[BrowserContext] = []
    errors: list[str] = []

    def make(**options: object) -> BrowserContext:
        context = browser.new_context(**{"locale": "en-US", **options})  # type: ignore[arg-type]
        context.set_default_timeout(LIMIT_MS)
        context.on("weberror", lambda error: errors.append(str(error.error)))
        contexts.append(context)
        return context

    yield make
    for context in contexts:
        context.close()
    assert errors == []


@pytest.fixture
def page(open_context: OpenContext) -> Page:
    return open_context().new_page()
