"""Finding things on the page as a reader does, and waiting for what is not on it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from playwright.sync_api import Locator, Page

# Keeps every notice that was ever on the page, however short: who looks later still finds it.
_REMEMBER = """
window.notices = [];
addEventListener('DOMContentLoaded', () => {
  const look = () => {
    for (const node of document.querySelectorAll('[role=alert], [role=status]')) {
      if (!window.notices.includes(node.textContent)) window.notices.push(node.textContent);
    }
  };
  new MutationObserver(look).observe(document, {
    subtree: true, childList: true, characterData: true,
  });
});
"""
_STORED = """async () => {
  const database = await new Promise((resolve) => {
    const opening = indexedDB.open('coli');
    opening.onsuccess = () => resolve(opening.result);
  });
  const all = (store) => new Promise((resolve) => {
    const asking = database.transaction(store).objectStore(store).getAll();
    asking.onsuccess = () => resolve(asking.result);
  });
  const rows = [await all('conversations'), await all('messages')];
  database.close();
  return JSON.stringify([rows, {...localStorage}, {...sessionStorage}, location.href]);
}"""


def composer(page: Page) -> Locator:
    return page.get_by_role("textbox", name="Message", exact=True)


def send(page: Page, text: str) -> None:
    composer(page).fill(text)
    composer(page).press("Enter")


def answers(page: Page) -> Locator:
    return page.get_by_role("article", name="Answer")


def remember_notices(page: Page) -> None:
    """Keep the alerts and states that the pages opened from now on show."""
    page.add_init_script(_REMEMBER)


def noticed(page: Page, words: str) -> bool:
    """Tell whether a notice with these words is or was on the page."""
    return any(words in notice for notice in page.evaluate("window.notices"))


def stored(page: Page) -> str:
    """Return all that the page keeps in the browser, as JSON."""
    kept: str = page.evaluate(_STORED)
    return kept


def until(condition: Callable[[], bool], limit_s: float = 60.0) -> None:
    end = time.monotonic() + limit_s
    while not condition():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.02)
