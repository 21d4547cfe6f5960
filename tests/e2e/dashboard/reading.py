"""Finding things on the page as a reader does, and waiting for what is not on it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page


def composer(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message", exact=True)


def send(page: Page, text: str) -> None:
    composer(page).fill(text)
    composer(page).press("Enter")


def answers(page: Page) -> Locator:
    return page.get_by_role("article", name="Answer")


def until(condition: Callable[[], bool], limit_s: float = 15.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
