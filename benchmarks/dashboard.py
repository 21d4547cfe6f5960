"""What the dashboard costs in a headless Chromium: streaming, the map of experts, long chats, size.

    scripts/web build
    python benchmarks/dashboard.py [stream brain scroll paint size] [--require]

A scripted server stands in for the engine: nothing else runs. Processor time is that of all
processes of the browser, the drawing done in software included, as a share of one core.

    stream  100 tokens/s for 20 s while a GLM-5.2-sized map of experts changes four times a second,
            once as one paragraph that never ends and once as Markdown with code
    brain   frames per second while all of 76 x 256 experts flash again and again
    scroll  tasks over 100 ms while a conversation of 200 messages is scrolled from end to start
    paint   first contentful paint of a browser that has nothing cached, median of 5
    size    what the first load fetches, compressed with gzip

`--require` exits 1 where a figure misses its bar.
"""

from __future__ import annotations

import argparse
import gzip
import itertools
import json
import os
import random
import re
import shutil
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Browser, FilePayload, Page, ViewportSize, sync_playwright

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT)]
from tests.e2e.dashboard.conftest import BUNDLE, FLAGS  # noqa: E402
from tests.fakes.scripted_server import (  # noqa: E402
    DONE,
    Reply,
    ScriptedServer,
    delta,
    stream,
    usage,
)

ROWS, COLS = 76, 256  # the experts of GLM-5.2, its draft layer included
SIZE: ViewportSize = {"width": 1440, "height": 900}
TOKENS_PER_S = 100
STREAM_S = 20
PROSE = "the quick brown fox jumps over the lazy dog and then goes on to say that it was late, "
MARKDOWN = (
    "## A heading\n\nSome **bold** words, `code` and a [link](https://example.com) in a line.\n\n"
    "- one thing\n- another thing\n- and a third that is longer\n\n"
    "```python\ndef area(radius):\n    # of a circle\n    return 3.14159 * radius ** 2\n```\n\n"
    "| name | value |\n|---|---|\n| first | 1 |\n| second | 2 |\n\n"
)


@dataclass
class Figure:
    """One result and its bar; `least` tells which side of the bar is the good one."""

    name: str
    value: float
    unit: str
    bar: float
    least: bool = False

    @property
    def is_met(self) -> bool:
        """Whether the bar is reached."""
        return self.value >= self.bar if self.least else self.value <= self.bar

    def line(self) -> str:
        """Return the figure as it is printed."""
        side = "at least" if self.least else "at most"
        mark = "" if self.is_met else "  MISSED"
        return f"{self.name:<28}{self.value:>9.1f} {self.unit:<9} {side} {self.bar:g}{mark}"


def pieces(text: str) -> list[str]:
    """Cut a text as tokens do: blanks go with the word after them."""
    return re.findall(r"\s?\S+|\s+", text)


def paced(text: str) -> Iterator[bytes | float]:
    """Yield a piece every hundredth of a second, late ones at once."""
    source = itertools.cycle(pieces(text))
    count = TOKENS_PER_S * STREAM_S
    began = time.monotonic()
    for number in range(count):
        yield delta(content=next(source))
        yield max(0.0, began + (number + 1) / TOKENS_PER_S - time.monotonic())
    yield from (delta("stop"), usage(9, count), DONE)


def experts(seq: int, *, all_of_them: bool = False) -> dict[str, object]:
    """Return a map in which a turn's share of the experts, or every one, was just used."""
    chance = random.Random(seq)
    count = ROWS * COLS
    cells = bytes(chance.choice((0, 64, 128)) | chance.randrange(30) for _ in range(count))
    hits = bytearray(b"\xff" * (count // 8) if all_of_them else bytes(count // 8))
    for index in () if all_of_them else chance.sample(range(count), ROWS * 16):
        hits[index // 8] |= 1 << index % 8
    return {"rows": ROWS, "cols": COLS, "map": cells.hex(), "hits": hits.hex(), "seq": seq}


def events(*, all_of_them: bool = False) -> Iterator[bytes | float]:
    """Yield four changes of the map a second, as `coli serve` does while it writes."""
    made = [experts(seq, all_of_them=all_of_them) for seq in range(1, 9)]
    for seq in itertools.count(1):
        view = {**made[seq % len(made)], "seq": seq}
        yield f"event: experts\ndata: {json.dumps(view)}\n\n".encode()
        yield 0.25


def children(pid: int) -> list[int]:
    """Return the processes that a process started, and theirs."""
    lists = Path(f"/proc/{pid}/task").glob("*/children")
    own = [int(word) for file in lists for word in file.read_text().split()]
    return [found for child in own for found in (child, *children(child))]


def cpu_s() -> float:
    """Return the processor time of all processes of the browser so far, in seconds."""
    ticks = 0
    for pid in children(os.getpid()):
        name, _, rest = Path(f"/proc/{pid}/stat").read_text().rpartition(")")
        if "chrom" in name:
            ticks += sum(int(field) for field in rest.split()[11:13])
    return ticks / os.sysconf("SC_CLK_TCK")


def send(page: Page, text: str) -> None:
    """Write a message and send it."""
    field = page.get_by_role("textbox", name="Message", exact=True)
    field.fill(text)
    field.press("Enter")


def measure_stream(browser: Browser, server: ScriptedServer) -> list[Figure]:
    """Return the processor share of answers that are streamed."""
    server.routes["GET /events"] = lambda _: stream(events())
    figures = []
    for name, text in (("one paragraph", PROSE), ("Markdown", MARKDOWN)):
        server.on_chat(stream(paced(text)))
        page = browser.new_page(viewport=SIZE)
        page.goto(server.url)
        send(page, "go")
        page.get_by_role("status").filter(has_text=re.compile(r"\d+ tokens")).wait_for()
        before, began = cpu_s(), time.monotonic()
        page.wait_for_timeout((STREAM_S - 4) * 1000)
        share = (cpu_s() - before) / (time.monotonic() - began)
        figures.append(Figure(f"stream, {name}", share * 100, "% core", 30))
        page.close()
    return figures


def measure_brain(browser: Browser, server: ScriptedServer) -> list[Figure]:
    """Return the frames per second of the map of experts."""
    server.routes["GET /events"] = lambda _: stream(events(all_of_them=True))
    page = browser.new_page(viewport=SIZE)
    page.goto(f"{server.url}/brain")
    page.get_by_role("grid").wait_for()
    page.wait_for_timeout(1000)
    rate = page.evaluate(
        """() => new Promise((resolve) => {
          const began = performance.now();
          let frames = 0;
          const count = () => {
            frames += 1;
            const spent = performance.now() - began;
            if (spent < 5000) requestAnimationFrame(count);
            else resolve((frames * 1000) / spent);
          };
          requestAnimationFrame(count);
        })"""
    )
    page.close()
    return [Figure("brain, all flashing", rate, "frames/s", 50, least=True)]


def measure_scroll(browser: Browser, server: ScriptedServer) -> list[Figure]:
    """Return the longest task while a long conversation is scrolled."""
    messages = [
        {"role": role, "content": f"{number}. {text}"}
        for number in range(100)
        for role, text in (("user", PROSE), ("assistant", MARKDOWN * 2 + PROSE * 4))
    ]
    file: FilePayload = {
        "name": "long.json",
        "mimeType": "application/json",
        "buffer": json.dumps(messages).encode(),
    }
    page = browser.new_page(viewport=SIZE)
    page.goto(f"{server.url}/settings")
    page.locator("input[type=file]").set_input_files(files=[file])
    page.get_by_role("link", name=re.compile("the quick brown fox")).first.click()
    page.get_by_text("99. the quick").wait_for()
    page.evaluate(
        """() => {
          window.tasks = [];
          new PerformanceObserver((list) => {
            window.tasks.push(...list.getEntries().map((entry) => entry.duration));
          }).observe({ type: 'longtask' });
        }"""
    )
    page.mouse.move(SIZE["width"] / 2, SIZE["height"] / 2)
    while not page.get_by_text("0. the quick", exact=False).first.is_visible():
        page.mouse.wheel(0, -900)
        page.wait_for_timeout(50)
        if page.evaluate("document.querySelector('[role=log]').scrollTop") == 0:
            break
    longest = max(page.evaluate("tasks"), default=0.0)
    page.close()
    return [Figure("scroll, longest task", longest, "ms", 100)]


def measure_paint(browser: Browser, server: ScriptedServer) -> list[Figure]:
    """Return when something was first seen."""
    times = []
    for _ in range(5):
        page = browser.new_context(viewport=SIZE).new_page()
        page.goto(server.url)
        page.get_by_role("textbox", name="Message", exact=True).wait_for()
        times.append(
            page.evaluate("performance.getEntriesByName('first-contentful-paint')[0].startTime")
        )
        page.context.close()
    return [Figure("first paint", statistics.median(times), "ms", 1000)]


def measure_size(browser: Browser, server: ScriptedServer) -> list[Figure]:
    """Return what the first load of the chat fetches, fonts aside."""
    fetched = {"index.html"}
    page = browser.new_page(viewport=SIZE)
    page.on("request", lambda request: fetched.add(request.url.removeprefix(f"{server.url}/")))
    page.goto(server.url)
    page.get_by_role("textbox", name="Message", exact=True).wait_for()
    page.wait_for_load_state("networkidle")
    page.close()
    names = [name for name in fetched if re.fullmatch(r"index\.html|assets/.+\.(js|css)", name)]
    total = sum(len(gzip.compress((BUNDLE / name).read_bytes())) for name in names)
    return [Figure("first load, gzip", total / 1000, "kB", 250)]


MEASURES: dict[str, Callable[[Browser, ScriptedServer], list[Figure]]] = {
    "stream": measure_stream,
    "brain": measure_brain,
    "scroll": measure_scroll,
    "paint": measure_paint,
    "size": measure_size,
}


def main() -> int:
    """Measure what was asked for."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("what", nargs="*", metavar="WHAT", help="all when left out")
    parser.add_argument("--require", action="store_true")
    options = parser.parse_args()
    if unknown := set(options.what) - set(MEASURES):
        parser.error(f"unknown: {', '.join(sorted(unknown))}; known: {', '.join(MEASURES)}")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None or not (BUNDLE / "index.html").is_file():
        sys.exit("needs chromium (apt-get install chromium) and the page (scripts/web build)")
    figures: list[Figure] = []
    for name in options.what or MEASURES:
        server = ScriptedServer(BUNDLE)
        server.routes["GET /experts"] = lambda _: Reply.of_json(experts(1))
        server.start()
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            for figure in MEASURES[name](browser, server):
                print(figure.line(), flush=True)
                figures.append(figure)
            browser.close()
        server.stop()
    return int(options.require and not all(figure.is_met for figure in figures))


if __name__ == "__main__":
    sys.exit(main())
