"""The atlas in a real browser: the galaxy, its filters, the way to an expert and to the brain."""

from __future__ import annotations

import base64
import re

import pytest
from playwright.sync_api import Locator, Page, expect

from tests.e2e.dashboard.conftest import OpenContext
from tests.e2e.dashboard.reading import until
from tests.fakes.scripted_server import Reply, ScriptedServer, health

pytestmark = [pytest.mark.e2e, pytest.mark.alone]

TOPICS = ["code", "law", "math"]
# 300 specialists of each topic in layers 3 to 5, and one generalist.
FILE = {
    "categories": TOPICS,
    "experts": {
        **{
            f"{layer}:{100 * place + number}": {
                "affinity": {topic: 0.9, TOPICS[(place + 1) % 3]: 0.1},
                "entropy": 0.47,
                "top": topic,
                "label": f"specialist: {topic}",
            }
            for layer in (3, 4, 5)
            for place, topic in enumerate(TOPICS)
            for number in range(100)
        },
        "6:1": {
            "affinity": {"code": 0.3, "law": 0.3, "math": 0.4},
            "entropy": 1.57,
            "top": "math",
            "label": "generalist",
        },
        "6:2": {"affinity": {"cooking": 1.0}},
        "6:3": {"affinity": {"code": "much"}},
    },
}
# How many pixels of a picture are lit; a canvas itself forgets what it drew once that was shown.
LIT = """async (picture) => {
  const bytes = Uint8Array.from(atob(picture), (letter) => letter.charCodeAt(0));
  const image = await createImageBitmap(new Blob([bytes]));
  const copy = new OffscreenCanvas(image.width, image.height).getContext('2d');
  copy.drawImage(image, 0, 0);
  const { data } = copy.getImageData(0, 0, image.width, image.height);
  let lit = 0;
  for (let at = 0; at < data.length; at += 4) {
    if (Math.max(data[at], data[at + 1], data[at + 2]) > 60) lit += 1;
  }
  return lit;
}"""


@pytest.fixture
def atlas(server: ScriptedServer) -> ScriptedServer:
    """A server with a measured atlas and a map of the same experts."""
    cells = bytes(64 for _ in range(4 * 300))
    view = {"rows": 4, "cols": 300, "map": cells.hex(), "hits": "00" * 150, "seq": 1}
    server.routes["GET /health"] = lambda _: Reply.of_json(health(atlas=True))
    server.routes["GET /experts.json"] = lambda _: Reply.of_json(FILE)
    server.routes["GET /experts"] = lambda _: Reply.of_json({**view, "layers": [3, 4, 5, 6]})
    return server


def galaxy(page: Page) -> Locator:
    return page.get_by_role("img", name=re.compile("experts as points in space"))


def lit(page: Page) -> int:
    """Return how many pixels of the galaxy are lit."""
    picture = base64.b64encode(galaxy(page).screenshot()).decode()
    return int(page.evaluate(LIT, picture))


def test_the_measured_experts_are_a_galaxy_that_can_be_filtered(
    open_context: OpenContext, atlas: ScriptedServer
) -> None:
    page = open_context(reduced_motion="reduce").new_page()
    page.goto(f"{atlas.url}/atlas")
    expect(page.get_by_text("901 experts, 900 of them specialists")).to_be_visible()
    expect(page.get_by_text("2 entries could not be read")).to_be_visible()
    until(lambda: lit(page) > 500)
    everything = lit(page)
    page.get_by_text("Experts as a table").click()
    rows = page.get_by_role("table").get_by_role("row")
    row = page.get_by_role("row", name=re.compile(r"^6:1\b"))
    expect(page.get_by_text(re.compile("Show more"))).to_be_visible()
    page.get_by_role("button", name="code").click()
    page.get_by_role("button", name="law").click()
    page.get_by_role("slider", name=re.compile("From layer")).fill("6")
    expect(rows).to_have_count(2)  # with the head
    expect(row).to_be_visible()
    page.get_by_text("Specialists only").click()
    expect(rows).to_have_count(1)
    until(lambda: lit(page) < everything / 2)


def test_an_expert_is_found_told_about_and_shown_in_the_brain(
    page: Page, atlas: ScriptedServer
) -> None:
    page.goto(f"{atlas.url}/atlas")
    field = page.get_by_role("searchbox", name="Find an expert")
    field.fill("5:777")
    expect(field).to_have_attribute("aria-invalid", "true")
    field.fill("4:105")
    expect(page.get_by_role("heading", name="Layer 4, expert 105")).to_be_visible()
    expect(page.get_by_text("Specialist: law")).to_be_visible()
    page.get_by_role("link", name="Show in Brain").click()
    expect(page).to_have_url(f"{atlas.url}/brain?expert=4:105")
    expect(page.get_by_role("gridcell")).to_contain_text("Layer 4, expert 105, RAM")
    expect(page.locator("main strong")).to_have_text("Layer 4, expert 105")


def test_a_finger_turns_the_galaxy_and_picks_a_point_and_two_come_nearer(
    open_context: OpenContext, atlas: ScriptedServer
) -> None:
    phone = {"width": 390, "height": 844}
    page = open_context(
        viewport=phone, has_touch=True, is_mobile=True, reduced_motion="reduce"
    ).new_page()
    page.goto(f"{atlas.url}/atlas")
    expect(page.get_by_text("901 experts")).to_be_visible()
    canvas = galaxy(page)
    label = page.get_by_text("law", exact=True).first
    expect(label).to_have_attribute("style", re.compile("translate"))
    before = label.get_attribute("style")
    box = canvas.bounding_box()
    assert box is not None
    touch = page.context.new_cdp_session(page)
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2

    def finger(kind: str, *points: tuple[float, float]) -> None:
        where = [{"x": left, "y": top, "id": number} for number, (left, top) in enumerate(points)]
        touch.send("Input.dispatchTouchEvent", {"type": kind, "touchPoints": where})

    finger("touchStart", (x, y))
    for step in range(1, 6):
        finger("touchMove", (x + 10 * step, y))
    finger("touchEnd")
    until(lambda: label.get_attribute("style") != before)
    heading = page.get_by_role("heading", name=re.compile("Layer .*, expert"))

    def pick() -> bool:
        # The points lie around their topic's name, a little nearer to the middle.
        name = label.bounding_box()
        assert name is not None
        left, top = name["x"] + name["width"] / 2, name["y"] + name["height"] / 2
        for part in range(10):
            share = part / 20
            page.touchscreen.tap(left + (x - left) * share, top + (y - top) * share)
            if heading.count() > 0:
                return True
        return False

    until(pick)
    expect(heading).to_be_visible()
    before = label.get_attribute("style")
    finger("touchStart", (x - 20, y), (x + 20, y))
    for step in range(1, 6):
        finger("touchMove", (x - 20 - 8 * step, y), (x + 20 + 8 * step, y))
    finger("touchEnd")
    until(lambda: label.get_attribute("style") != before)


def test_the_names_of_topics_do_not_cover_each_other(
    open_context: OpenContext, server: ScriptedServer
) -> None:
    topics = [f"a topic of number {number}" for number in range(10)]
    experts = {f"3:{at}": {"affinity": {topic: 1.0}} for at, topic in enumerate(topics)}
    file = {"categories": topics, "experts": experts}
    server.routes["GET /health"] = lambda _: Reply.of_json(health(atlas=True))
    server.routes["GET /experts.json"] = lambda _: Reply.of_json(file)
    phone = {"width": 390, "height": 844}
    page = open_context(viewport=phone, reduced_motion="reduce").new_page()
    page.goto(f"{server.url}/atlas")
    names = page.locator("main [aria-hidden] > span").filter(has_text="a topic of number")
    expect(names.first).to_have_attribute("style", re.compile("translate"))
    covered = """async (nodes) => {
      await new Promise((done) => setTimeout(done, 100)); // what gives way is there at once
      const boxes = nodes.map((node) => node.getBoundingClientRect());
      const isOver = (a, b) =>
        a.left < b.right && b.left < a.right && a.top < b.bottom && b.top < a.bottom;
      return boxes.flatMap((a, at) => boxes.slice(at + 1).filter((b) => isOver(a, b))).length;
    }"""
    galaxy(page).focus()
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        assert names.evaluate_all(covered) == 0


def test_without_three_dimensions_the_table_tells_it_all(page: Page, atlas: ScriptedServer) -> None:
    page.add_init_script("HTMLCanvasElement.prototype.getContext = () => null")
    page.goto(f"{atlas.url}/atlas")
    expect(page.get_by_text("draws nothing in three dimensions")).to_be_visible()
    page.get_by_text("Experts as a table").click()
    expect(page.get_by_role("table").get_by_role("row").nth(1)).to_be_visible()


def test_without_an_atlas_the_page_says_how_to_make_one(page: Page, server: ScriptedServer) -> None:
    page.goto(f"{server.url}/atlas")
    expect(page.get_by_text("coli atlas sweep --model MODEL")).to_be_visible()
