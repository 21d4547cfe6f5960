"""What showing an answer costs: processor time per piece, and bytes written per character.

Run as `python benchmarks/bench_chat_render.py`. The chat draws at most thirty times a second and
waits nine times as long as drawing took, so the share it prints is what it would be without that.
"""

from __future__ import annotations

import io
import time

from rich.console import Console

from colibri_cli.terminal.answer_view import MarkdownAnswer
from colibri_cli.terminal.live_region import LiveRegion, TerminalOutput
from colibri_cli.terminal.markdown_view import MarkdownView

SIZE = (80, 24)
PIECE = 4  # characters: about a token
RATE = 50  # tokens per second
ANSWERS = {
    "prose": "A paragraph of words that is neither short nor long, **some bold**. " * 4 + "\n\n",
    "table": "| name | value |\n|---|--:|\n" + "| a row | 1234 |\n" * 30 + "\n",
    "code": "```python\n" + "def f(x):\n    return x + 1  # a comment\n\n" * 60 + "```\n\n",
}


def measure(name: str, source: str) -> None:
    """Show an answer piece by piece and print what it cost."""
    console = Console(file=io.StringIO(), width=500, color_system="256", force_terminal=True)
    answer = MarkdownAnswer(MarkdownView(console))
    written = 0

    def write(text: str) -> None:
        nonlocal written
        written += len(text)

    region = LiveRegion(TerminalOutput(write, lambda: SIZE))
    began = time.process_time()
    count = 0
    for start in range(0, len(source), PIECE):
        answer.feed(source[start : start + PIECE])
        region.update(*answer.lines(SIZE))
        count += 1
    region.update(answer.finish(SIZE), ())
    each = (time.process_time() - began) / count
    print(
        f"{name:<6} {count:>5} pieces  {1000 * each:6.2f} ms each"
        f"  {100 * each * RATE:5.1f} % of a core at {RATE}/s"
        f"  {written / len(source):5.1f} bytes per character"
    )


if __name__ == "__main__":
    for answer_name, block in ANSWERS.items():
        measure(answer_name, block * 4)
