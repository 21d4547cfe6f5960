"""Every view of the command line with figures that stand still, drawn on a terminal of any width.

A view draws on standard output, by the code its command uses. `drawn` runs one and returns what the
terminal would get; `readable` writes its colour codes so that a file of them can be read.
"""

from __future__ import annotations

import asyncio
import io
import re
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from rich.text import Text

from colibri_cli import console as consoles
from colibri_cli.benchmark.figures import BenchResult, SpeedRow
from colibri_cli.chat.command import built_in_commands
from colibri_cli.chat.commands.session import show_help
from colibri_cli.commands import bench, build, diag, doctor, plan
from colibri_cli.commands import list as models
from colibri_cli.commands.ps import _cells as server_cells
from colibri_cli.doctor.examination import DoctorReport, failed, passed, skipped, warned
from colibri_cli.errors import UsageError
from colibri_cli.help_page import render as help_page
from colibri_cli.model_store.store import StoredModel
from colibri_cli.native_build import Kernels, Variant
from colibri_cli.palette import PALETTE
from colibri_cli.quality import command as quality
from colibri_cli.settings import is_light_terminal, shows_color
from colibri_cli.supervisor.telemetry import Telemetry
from colibri_cli.terminal.banner import render as banner
from colibri_cli.terminal.chat_screen import TerminalScreen
from colibri_cli.terminal.chat_views import view_of
from colibri_cli.terminal.live_region import TerminalOutput
from colibri_cli.terminal.serve_panel import ServePanel
from colibri_cli.terminal.top_view import RemoteSource, TopView
from colibri_protocol.messages import ExpertMap

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    import pytest

HEIGHT: Final = 40
_COLOR: Final = re.compile(r"\x1b\[([0-9;]*)m")
_OTHER: Final = re.compile(r"\x1b\[[?0-9;]*[A-Za-z]")

RUNNING: Final = {
    "slot": 1, "request": "req_0123456789abcdef", "state": "decode", "prompt_tokens": 1200,
    "prefilled_tokens": 1200, "generated": 340, "tokens_per_second": 125.25, "wait_s": 0.25,
    "age_s": 75.0,
}  # fmt: skip
READING: Final = {
    **RUNNING, "slot": 2, "request": "req_fedcba9876543210", "state": "prefill",
    "prefilled_tokens": 256, "generated": 0, "tokens_per_second": 0.0, "age_s": 7260.0,
}  # fmt: skip
TIERS: Final = {"vram": 12, "ram": 10_200, "disk": 9_100, "vram_gb": 1.5, "ram_gb": 120.4}
HEALTH: Final[dict[str, Any]] = {
    "status": "ok", "version": "0.1.0", "model": "glm-5.2-colibri", "uptime_s": 7_800,
    "kv_slots": 3, "slots": [RUNNING, READING], "tiers": TIERS,
    "scheduler": {
        "active": 2, "queued": 3, "capacity": 3, "max_queue": 8, "completed": 1507, "failed": 1,
        "aborted": 2, "rejected": 3, "timed_out": 4, "cancelled": 5,
    },
    "hwinfo": {
        "cores": 96, "ram_total_gb": 1512.0, "gpus": 1, "gpu": "Some Accelerator 5000 (24 GB)",
        "cpu": "Some Vendor Processor 9654 96-Core",
    },
}  # fmt: skip
_CELLS: Final = bytes(
    (0x80 if row == 0 else 0x40 if col % 4 else 0x00) | (row * 7 + col) % 40
    for row in range(6) for col in range(48)
)  # fmt: skip
EXPERTS: Final = {"rows": 6, "cols": 48, "map": _CELLS.hex(), "hits": "", "seq": 0}
TURN: Final = {
    "wall_s": 12.5, "prompt_tokens": 1200, "completion_tokens": 340, "expert_disk_s": 1.25,
    "expert_wait_s": 2.5, "expert_matmul_s": 5.0, "attention_s": 1.5, "lm_head_s": 0.75,
    "forwards": 341,
}  # fmt: skip
TURNS: Final = [{**TURN, "completion_tokens": 40 + 30 * n} for n in (1, 5, 2, 8, 3, 9, 4, 7, 6, 10)]
ANSWER: Final = """# Birds

A *hummingbird* weighs **2 grams** and beats its `wings` fifty times a second, which few birds do.

1. first of all, an item that is long enough to be wrapped on every terminal of the three there are
2. second

> quoted

| bird | weight |
|---|---:|
| bee hummingbird | 2 g |

```python
def beat(times: int) -> str:
    return "up, down " * times  # a line of code that is longer than the narrow terminal
```
"""


class _Terminal(io.StringIO):
    """Standard output on a terminal."""

    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


def drawn(
    view: str, width: int, mode: str, monkeypatch: pytest.MonkeyPatch, directory: Path
) -> str:
    """Return what a terminal gets.

    Args:
        view: Name in `VIEWS`.
        width: Its columns.
        mode: "mono", "dark" or "light".
        monkeypatch: Undoes what is changed.
        directory: A directory of the test's own.
    """
    variables = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": str(width),
                 "LINES": str(HEIGHT), "TZ": "UTC"}  # fmt: skip
    variables |= {"NO_COLOR": "1"} if mode == "mono" else {"COLI_THEME": mode}
    for name in ("NO_COLOR", "FORCE_COLOR", "COLI_THEME", "COLORFGBG"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.chdir(directory)
    _forget_consoles()
    try:
        VIEWS[view]()
    finally:
        _forget_consoles()
    return terminal.getvalue()


def plain(text: str) -> str:
    """Return a text without any codes."""
    return _OTHER.sub("", text)


def readable(text: str) -> str:
    """Return a text with its colour codes in braces and without other codes."""
    return _OTHER.sub("", _COLOR.sub(lambda found: "{" + found[1] + "}", text))


def _forget_consoles() -> None:
    consoles.stdout_console.cache_clear()
    consoles.stderr_console.cache_clear()


# ---- live views ---------------------------------------------------------------------------------


class _Source:
    """A server whose figures stand still."""

    url = "http://127.0.0.1:8000"
    rates = tuple(turn["completion_tokens"] / turn["wall_s"] for turn in TURNS)

    @property
    def health(self) -> Callable[[], Awaitable[Mapping[str, Any]]]:
        async def latest() -> Mapping[str, Any]:
            return HEALTH

        return latest

    @property
    def telemetry(self) -> Callable[[], Telemetry]:
        seen = Telemetry()
        seen.feed(ExpertMap(6, 48, _CELLS))
        return lambda: seen


def _has_color() -> bool:
    return not consoles.stdout_console().no_color


def _panel() -> None:
    console = consoles.stdout_console()
    panel = ServePanel(_Source(), has_color=_has_color(), console=console)
    console.print(panel.render(HEALTH))


def _top() -> None:
    console = consoles.stdout_console()
    source = RemoteSource("http://127.0.0.1:8000")
    source.take({"health": HEALTH, "experts": EXPERTS, "profile": {"turns": TURNS}})
    console.print(TopView(source, console, has_color=_has_color()).render("q quit · p pause"))


def _view(name: str, figures: object) -> Callable[[], None]:
    def draw() -> None:
        console = consoles.stdout_console()
        console.print(view_of(name, figures, console.width, has_color=_has_color()))

    return draw


# ---- the chat -----------------------------------------------------------------------------------


def _write(text: str) -> None:
    sys.stdout.write(text)


def _screen() -> TerminalScreen:
    width = consoles.stdout_console().width
    return TerminalScreen(output=TerminalOutput(_write, lambda: (width, HEIGHT)))


def _talk() -> None:
    screen = _screen()
    screen.show_message("How much does it weigh?\nIn grams, please.")
    screen.show_reasoning_of("The user wants a weight: a number of grams is to be looked up.")
    screen.show_answer(ANSWER)
    screen.notice("1200 → 340 tokens · 125.25 tok/s · hit 98 % · RSS 1.50 GB · 12.5 s")
    error = UsageError(
        "there is no command /thik", hint="did you mean /think? /help lists them, // sends a "
        "message that begins with a slash"
    )  # fmt: skip
    screen.show_error(error)


def _chat_help() -> None:
    chat: Any = SimpleNamespace(screen=_screen(), commands=built_in_commands())
    asyncio.run(show_help(chat, ""))


# ---- tables and reports -------------------------------------------------------------------------

_RAM: Final = {
    "budget_bytes": 21e9, "dense_bytes": 72.5e6, "conversations_bytes": 201.3e6,
    "steps_bytes": 49e6, "process_bytes": 256e6, "warm_expert_bytes": 120.4e9, "reads_bytes": 0,
    "free_bytes": 20.4e9, "cache_slots_per_layer": 12, "max_slots_per_layer": 14,
    "experts": 10_200,
}  # fmt: skip


def _plan_of(label: str, factor: float) -> dict[str, Any]:
    return {
        "label": label, "runs": True, "mode": "streamed", "hit_rate": 0.913,
        "hit_source": "usual shares", "bottleneck": "disk", "warnings": ["swap is in use"],
        "tiers": {
            "vram": {"experts": 0, "hot_expert_bytes": 0}, "ram": _RAM,
            "disk": {"experts": 9_100, "cold_expert_bytes": 61.5e9},
        },
        "decode": {
            "tokens_per_second": 3.12 * factor, "hidden_share": 0.4, "missed_bytes": 812e6,
            "terms": {
                "weights_s": 0.02, "experts_s": 0.0512, "attention_s": 0.001, "calls_s": 0.0009,
                "read_s": 0.31 / factor, "hidden_s": 0.06,
            },
        },
        "prefill": {"tokens_per_second": 45.6 * factor},
    }  # fmt: skip


def _planned(*labels: str) -> Callable[[], None]:
    def draw() -> None:
        report = {
            "model": {
                "name": "glm-5.2", "family": "glm_moe_dsa", "model_bytes": 380.2e9, "layers": 78,
                "expert_layers": 75, "experts": 256, "experts_per_token": 8,
                "typical_expert_bytes": 19.3e6,
            },
            "machine": {
                "cpu": "Some Vendor Processor 9654 96-Core", "threads": 96, "isa": "avx512",
                "memory": {"available_bytes": 23.9e9, "total_bytes": 25.3e9, "limit": None},
                "rates": {
                    "decode_bytes_per_s": {"f32": 112.1e9, "int4": 92.8e9, "int8": 87.1e9},
                    "experts_decode_bytes_per_s": 37.5e9,
                },
                "disk": {"bytes_per_s": 6.25e9},
            },
            "plans": [_plan_of(label, 1 + n) for n, label in enumerate(labels)],
        }  # fmt: skip
        plan._show(plan.PlanOptions(), report)

    return draw


def _doctor() -> None:
    report = DoctorReport("/models/glm-5.2", "standard")
    report.checks += [
        ("model.path", passed("/models/glm-5.2 can be read")),
        ("model.shards", failed("model-00003-of-00144.safetensors ends in the middle of a tensor")),
        ("storage.disk", warned("0.4 GB free, which is less than 1 GB")),
        ("storage.mirror", skipped("not configured")),
    ]
    doctor._show(doctor.DoctorOptions(), report)


def _facts() -> None:
    consoles.print_facts(
        [
            ("model", "glm-5.2, /data/models/huge-disk/glm-5.2-colibri-int4-containers"),
            ("experts", "256 per layer, 8 per token"),
            ("formats", "2269 Q4_1, 1073 F16, 119 F32, 1 Q8_0"),
            ("chat format", "a template of 368 characters (`--template` prints it)"),
        ]
    )


def _models() -> None:
    found = [
        StoredModel("demo", "glm4_moe", "/data/models/demo/demo.gguf", "demo", 136_100_000, 36, ""),
        StoredModel("glm-5.2", "glm_moe_dsa", "/mnt/nvme0/glm-5.2", "added", 380 * 10**9, 256, ""),
    ]
    models.print_models(found)


def _servers() -> None:
    row = {
        "pid": 1234567, "url": "http://127.0.0.1:8000", "model": "glm-5.2-colibri", "state": "ok",
        "slots_active": 2, "slots": 3, "rss_gb": 120.4, "uptime_s": 7_800,
    }  # fmt: skip
    columns = [("pid", True), ("url", False), ("model", False), ("state", False)]
    columns += [("slots", False), ("memory", True), ("up", True)]
    consoles.print_table(columns, [server_cells(row)])


def _speeds(factor: float) -> BenchResult:
    rounds = tuple(factor * speed for speed in (100.0, 104.5, 99.0, 101.25, 103.0, 102.0))
    rows = [
        SpeedRow("prefill", 512, 0, 1, rounds), SpeedRow("prefill", 512, 0, 1, rounds[:1], True),
        SpeedRow("decode", 128, 16, 4, tuple(speed / 4 for speed in rounds)),
    ]  # fmt: skip
    details = {"isa": "avx512", "num_threads": 96, "numerics": "default"}
    cpu = "Some Vendor Processor 9654 96-Core"
    return BenchResult("glm-5.2", details, cpu, (2.5,), (0.5,), 1_500_000_000, rows=rows)


def _bench() -> None:
    bench._show(bench.BenchOptions(), _speeds(1.0))


def _compared() -> None:
    import json

    for name, factor in (("a.json", 1.0), ("b.json", 1.25)):
        Path(name).write_text(json.dumps(_speeds(factor).document()))
    bench._compare(bench.BenchOptions(), Path("a.json"), Path("b.json"))


def _quality() -> None:
    row = {"n": 40, "acc": 62.5, "acc_interval": (46.1, 76.9), "acc_norm": 65.0,
           "acc_norm_interval": (48.5, 79.1)}  # fmt: skip
    tasks = [{"task": name, **row} for name in ("smoke", "arc_challenge")]
    quality._show({"tasks": tasks, "mean_acc_norm": 65.0, "start_tokens": "[gMASK]<sop>"})


def _diag() -> None:
    rows = [
        {"metric": "throughput.decode_tokens_per_second", "current": 98.4, "baseline": 125.25,
         "unit": "tok/s", "is_share": False, "verdict": "worse"},
        {"metric": "smoke.passed", "current": 12.0, "baseline": 12.0, "unit": "",
         "is_share": False, "verdict": "same"},
    ]  # fmt: skip
    comparison = {"rows": rows, "worse": ["throughput.decode_tokens_per_second"]}
    document: Any = {"comparison": comparison, "metrics": {}, "problems": []}
    diag._show(diag.DiagOptions(out="report"), document)


def _settings() -> None:
    columns = [("setting", False), ("value", False), ("origin", False)]
    rows = [
        ("model", "/mnt/nvme0/glm-5.2", "environment COLI_MODEL"),
        ("repetition_penalty", "(the model's own, else 1)", "default"),
        ("max_tokens", "4096", "config /srv/settings/of/the/project/colibri.toml"),
    ]
    consoles.print_table(columns, rows)


def _help() -> None:
    plugins = {"atlas": "Map experts to topics."}
    width = consoles.stdout_console().width
    is_light = is_light_terminal()
    text = help_page(plugins, width=width, has_color=shows_color(), is_light=is_light)
    sys.stdout.write(text)


def _build() -> None:
    variants = (
        Variant("amx", runs=False),
        Variant("avx512", runs=True, compared=88),
        Variant("avx2", True, 88, tuple(f"int{n} default, 9x224 by 80" for n in (4, 8, 16, 2))),
        Variant("scalar", runs=True, problem="the engine's job was ended by signal 4"),
    )
    build.show(Kernels("Some Vendor Processor 9654 96-Core", "avx512", variants))


def _banner() -> None:
    texts = ["coli 0.1.0", "mixture models larger than memory", "GLM · 78x256 MoE · 380 GB"]
    texts.append("chat · /help lists commands, Ctrl-D leaves")
    width = consoles.stdout_console().width
    is_light = is_light_terminal()
    sys.stdout.write(banner(texts, width=width, has_color=shows_color(), is_light=is_light))


def _palette() -> None:
    for name in PALETTE:
        consoles.stdout_console().print(Text(name, style=name))


VIEWS: Final[dict[str, Callable[[], None]]] = {
    "banner": _banner,
    "bench": _bench,
    "bench-compare": _compared,
    "bench-quality": _quality,
    "build": _build,
    "chat-answer": _talk,
    "chat-experts": _view("experts", EXPERTS),
    "chat-help": _chat_help,
    "chat-phases": _view("phases", TURNS),
    "chat-queue": _view("queue", HEALTH),
    "chat-tiers": _view("tiers", TIERS),
    "config-show": _settings,
    "diag": _diag,
    "doctor": _doctor,
    "facts": _facts,
    "help": _help,
    "list": _models,
    "palette": _palette,
    "plan": _planned("now"),
    "plan-what-if": _planned("now", "ram=64", "ram=512"),
    "ps": _servers,
    "serve-panel": _panel,
    "top": _top,
}
