"""The map of the experts: what is drawn, what flashes, and how an expert is asked about."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

from tests.e2e.dashboard.conftest import OpenContext
from tests.e2e.dashboard.reading import until
from tests.e2e.dashboard.test_real_server import demo
from tests.e2e.test_serve import RunningServer, chat
from tests.fakes.scripted_server import Reply, ScriptedServer

pytestmark = [pytest.mark.e2e, pytest.mark.alone]
__all__ = ["demo"]

# Two layers of four: disk, never; RAM, once; VRAM, heat 24; disk, heat 63; and the same again.
MAP = "0041983f" * 2
VRAM = [78, 214, 165]
# The middle of each cell of the map, row by row, as [red, green, blue].
COLORS = """([rows, cols]) => {
  const canvas = document.querySelector('main canvas');
  const context = canvas.getContext('2d');
  const turned = canvas.parentElement.parentElement.dataset.turned === 'true';
  const [across, down] = turned ? [rows, cols] : [cols, rows];
  const image = context.getImageData(0, 0, canvas.width, canvas.height);
  return Array.from({ length: rows * cols }, (_, index) => {
    const place = [index % cols, Math.floor(index / cols)];
    const [x, y] = turned ? place.reverse() : place;
    const left = Math.floor(((x + 0.4) * canvas.width) / across);
    const top = Math.floor(((y + 0.4) * canvas.height) / down);
    return [...image.data.slice(4 * (top * canvas.width + left)).slice(0, 3)];
  });
}"""
# Collects which cells were ever white, and what was sent to the page, from before it starts.
WATCH = """
window.flashed = new Set();
window.events = '';
const realFetch = window.fetch;
window.fetch = async (...call) => {
  const response = await realFetch(...call);
  if (!String(call[0]?.url ?? call[0]).endsWith('/events')) return response;
  const [own, shown] = response.body.tee();
  (async () => {
    const decoder = new TextDecoder();
    for await (const part of own) window.events += decoder.decode(part, { stream: true });
  })();
  return new Response(shown, response);
};
"""
FOLLOW = f"""(shape) => {{
  const colors = {COLORS};
  const look = () => {{
    colors(shape).forEach((color, index) => {{
      if (Math.min(...color) > 235) window.flashed.add(index);
    }});
    requestAnimationFrame(look);
  }};
  look();
}}"""

IS_DARK = f"""async (shape) => {{
  const frame = () => new Promise(requestAnimationFrame);
  await frame();
  await frame();
  return ({COLORS})(shape).every((color) => Math.min(...color) <= 235);
}}"""


def reports(page: Page) -> list[dict[str, Any]]:
    """Return the maps that were pushed to a page under `WATCH`."""
    found = re.findall(r"event: experts\ndata: (.*)\n\n", page.evaluate("events"))
    return [json.loads(data) for data in found]


def last_seq(page: Page) -> int:
    found = reports(page)
    return int(found[-1]["seq"]) if found else -1


class Experts:
    """What `/experts` answers, to be changed by a test."""

    def __init__(self, server: ScriptedServer, **fields: object) -> None:
        self.view = {"rows": 2, "cols": 4, "map": MAP, "hits": "05", "seq": 1, **fields}
        server.routes["GET /experts"] = lambda _: Reply.of_json(self.view)


def colors(page: Page) -> list[list[int]]:
    found: list[list[int]] = page.evaluate(COLORS, [2, 4])
    return found


def wait_for_the_map(page: Page) -> None:
    page.get_by_role("grid", name="Experts by layer").wait_for()
    until(lambda: colors(page)[2] == VRAM)


def test_each_cell_has_the_colour_of_its_tier_and_heat(page: Page, server: ScriptedServer) -> None:
    Experts(server)
    page.goto(f"{server.url}/brain")
    expect(page.get_by_role("heading", name="Brain")).to_be_visible()
    expect(page.get_by_text("2 layers with experts \u00d7 4 = 8")).to_be_visible()
    wait_for_the_map(page)
    disk, ram, _, hot = colors(page)[:4]
    # Halves go up, as the page rounds.
    assert disk == [int(0.35 * part + 0.5) for part in hot]
    assert ram == [int((0.35 + 0.65 / 24) * part + 0.5) for part in (90, 155, 216)]
    assert colors(page)[4:] == colors(page)[:4]
    for tier, text in (("vram", "2 25%"), ("ram", "2 25%"), ("disk", "4 50%"), ("used", "2")):
        row = page.locator(f"[data-tier={tier}] dd")
        expect(row).to_have_text(re.compile(text.replace(" ", r"\s*")))


def test_a_report_flashes_once_and_fades(page: Page, server: ScriptedServer) -> None:
    experts = Experts(server)
    page.goto(f"{server.url}/brain")
    wait_for_the_map(page)
    before = colors(page)
    page.evaluate("window.flashed = new Set()")
    page.evaluate(FOLLOW, [2, 4])
    experts.view |= {"hits": "42", "seq": 2}
    until(lambda: page.evaluate("flashed.size") == 2)
    assert page.evaluate("[...flashed].sort()") == [1, 6]
    until(lambda: colors(page) == before)
    page.evaluate("window.flashed.clear()")
    asked = len(server.to("GET /experts"))
    until(lambda: len(server.to("GET /experts")) >= asked + 2)  # the same report again
    assert page.evaluate("flashed.size") == 0


def test_with_less_motion_the_used_are_outlined(
    open_context: OpenContext, server: ScriptedServer
) -> None:
    experts = Experts(server)
    page = open_context(reduced_motion="reduce").new_page()
    page.goto(f"{server.url}/brain")
    wait_for_the_map(page)
    before = colors(page)
    page.evaluate("window.flashed = new Set()")
    page.evaluate(FOLLOW, [2, 4])
    experts.view |= {"hits": "42", "seq": 2}
    edge = """() => {
      const canvas = document.querySelector('main canvas');
      const line = canvas.getContext('2d').getImageData(0, 5, canvas.width, 1).data;
      const width = canvas.width / 4;
      return [0, 1, 2, 3].map((col) => line[4 * Math.floor(col * width)] > 235);
    }"""
    until(lambda: page.evaluate(edge) == [False, True, False, False])
    assert colors(page) == before
    assert page.evaluate("flashed.size") == 0


def test_an_expert_is_asked_about_by_keys_and_by_pointer(
    page: Page, server: ScriptedServer
) -> None:
    Experts(server, layers=[3, 78], mtp_row=1)
    page.goto(f"{server.url}/brain")
    map_ = page.get_by_role("grid", name="Experts by layer")
    map_.focus()
    cell = page.get_by_role("gridcell")
    # Without a measured atlas the depth tells what an expert is likely to do.
    guess = ", rule of thumb for this depth: surface and syntax"
    expect(cell).to_have_text(f"Layer 3, expert 0, Disk, never chosen, used just now{guess}")
    page.keyboard.press("ArrowRight")
    expect(cell).to_have_text(f"Layer 3, expert 1, RAM, chosen once{guess}")
    page.keyboard.press("PageDown")
    page.keyboard.press("ArrowRight")
    heat = "chosen 8,388,608\u201316,777,215 times"
    expect(cell).to_contain_text(f"Layer 78 (MTP), expert 2, VRAM, {heat}")
    assert map_.get_attribute("aria-activedescendant") == cell.get_attribute("id")
    tip = page.locator("main strong")
    expect(tip).to_have_text("Layer 78 (MTP), expert 2")
    box = page.locator("main canvas").bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] * 0.9, box["y"] + box["height"] * 0.2)
    expect(tip).to_have_text("Layer 3, expert 3")
    page.mouse.move(1, 1)
    expect(tip).to_have_text("Layer 78 (MTP), expert 2")
    page.get_by_text("Numbers of each layer").click()
    expect(page.get_by_role("row", name="Layer 3 1 1 2 2")).to_be_visible()


def test_an_expert_is_asked_about_by_a_finger(
    open_context: OpenContext, server: ScriptedServer
) -> None:
    Experts(server, layers=[3, 78])
    phone = {"width": 390, "height": 844}
    page = open_context(viewport=phone, has_touch=True, is_mobile=True).new_page()
    page.goto(f"{server.url}/brain")
    wait_for_the_map(page)
    box = page.locator("main canvas").bounding_box()
    assert box is not None
    is_turned = page.locator("main [data-turned=true]").count() == 1
    for layer, expert, name in ((0, 3, "Layer 3, expert 3"), (1, 0, "Layer 78, expert 0")):
        along, across = (expert + 0.4) / 4, (layer + 0.4) / 2
        left, top = (across, along) if is_turned else (along, across)
        page.touchscreen.tap(box["x"] + box["width"] * left, box["y"] + box["height"] * top)
        expect(page.locator("main strong")).to_have_text(name)
        expect(page.get_by_role("gridcell")).to_contain_text(name)


def test_a_map_that_cannot_be_read_is_told_and_the_last_one_stays(
    page: Page, server: ScriptedServer
) -> None:
    experts = Experts(server)
    page.goto(f"{server.url}/brain")
    wait_for_the_map(page)
    experts.view |= {"map": MAP[:-2], "seq": 2}
    expect(page.get_by_role("status").filter(has_text="cannot be read")).to_be_visible()
    assert colors(page)[2] == VRAM


def test_a_server_without_experts_is_told(page: Page, server: ScriptedServer) -> None:
    server.routes["GET /health"] = lambda _: Reply.of_json({"status": "ok"})
    page.goto(f"{server.url}/brain")
    expect(page.get_by_text("The map needs coli serve")).to_be_visible()


@pytest.mark.usefixtures("bundle")
def test_while_the_demo_model_writes_the_experts_it_reports_flash(
    page: Page, demo: RunningServer
) -> None:
    problems: list[str] = []
    page.on("console", lambda line: problems.append(line.text) if line.type == "error" else None)
    page.add_init_script(WATCH)
    page.goto(f"{demo.url}/brain")
    with demo.client() as client:
        chat(client, "Hi.", max_tokens=4)
        view = client.get("/experts").json()
        shape = [view["rows"], view["cols"]]
        words = re.compile(rf"{shape[0]} layers with experts \u00d7 {shape[1]} =")
        expect(page.get_by_text(words)).to_be_visible()
        until(lambda: last_seq(page) == client.get("/experts").json()["seq"])
        page.evaluate(FOLLOW, shape)
        until(lambda: page.evaluate(IS_DARK, shape))  # what flashed before is over
        page.evaluate("window.flashed.clear(); window.events = ''")
        chat(client, "Write a story about a bird.", max_tokens=40)
        until(lambda: "event: turn" in page.evaluate("events"))
        until(lambda: last_seq(page) == client.get("/experts").json()["seq"])
    reported: set[int] = set()
    for report in reports(page):
        bits = int.from_bytes(bytes.fromhex(report["hits"]), "little")
        reported |= {index for index in range(shape[0] * shape[1]) if bits >> index & 1}
    until(lambda: len(page.evaluate("[...flashed]")) >= len(reported))
    assert reported
    assert set(page.evaluate("[...flashed]")) == reported
    assert problems == []
