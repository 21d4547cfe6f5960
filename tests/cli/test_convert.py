"""`coli convert` as a process: plan first, result last, one line for what goes wrong."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from rich.progress import Progress, TextColumn

from colibri_cli import console
from colibri_cli.console import theme_for
from colibri_cli.main import main
from colibri_cli.model_store import converting, hub_source
from colibri_cli.model_store.hub_source import Fetcher, HubFiles
from colibri_cli.termination import Terminated
from tests.engine.conversion.rig import weight_files, write_source
from tests.fakes.command_line import CommandLine
from tests.fakes.hub_server import Hub, serve_hub

SHARDS = ("--shard-gb", "0.0005")
BIG: dict[str, Any] = {"hidden_size": 256, "n_routed_experts": 16, "moe_intermediate_size": 192}


@pytest.fixture
def source(coli: CommandLine) -> Path:
    return write_source(coli.home / "source").path


@pytest.mark.e2e
def test_the_plan_is_printed_first_and_kept(coli: CommandLine, source: Path) -> None:
    arguments = ("convert", str(source), "--model", "out", "--ebits", "4", "--group-size", "64")
    planned = coli.run(*arguments, "--dry-run", "--json")
    assert planned.returncode == 0, planned.stderr
    body = json.loads(planned.stdout)
    assert body["converted"] is False
    assert not (coli.home / "out").exists()
    done = coli.run(*arguments, "--verify")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].split()[:2] == ["class", "format"]
    experts = next(line for line in lines if line.startswith("routed experts, gate"))
    assert experts.split()[3:6] == ["int4-grouped", "64", "4"]
    assert lines[-2].endswith("in 1 file, layout stream")
    assert lines[-1] == "out"
    size = sum(len(data) for data in weight_files(coli.home / "out").values())
    assert size == body["plan"]["result_bytes"]
    assert "converting: " in done.stderr
    assert "[1/1] model-00001-of-00001.safetensors, " in done.stderr
    assert "verified" in done.stderr


@pytest.mark.e2e
def test_the_result_answers_like_any_model(coli: CommandLine, source: Path) -> None:
    for layout in ("stream", "pairs"):
        named = ("--from", str(source), "--out", layout)
        done = coli.run("convert", *named, "--layout", layout, "--quiet")
        assert (done.returncode, done.stdout) == (0, f"{layout}\n"), done.stderr
    prompt = ("--temp", "0", "--max-tokens", "8", "hello world")
    answers = [coli.run("run", "--model", m, *prompt) for m in ("stream", "pairs")]
    assert [answer.returncode for answer in answers] == [0, 0], answers[0].stderr
    assert answers[0].stdout == answers[1].stdout != ""


@pytest.mark.parametrize("end", [KeyboardInterrupt, Terminated])
@pytest.mark.parametrize("dry", [(), ("--dry-run",)])
def test_who_stops_it_is_told_how_it_goes_on(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    end: type[BaseException],
    dry: tuple[str, ...],
) -> None:
    plan = {"classes": [], "files": 1, "layout": "stream", "left_out": [], "warnings": []}
    plan |= {"source_bytes": 0, "result_bytes": 0}

    def stopped(request: object, show: Callable[[dict[str, Any]], None]) -> None:
        show(dict(plan))
        raise end

    monkeypatch.setattr(converting, "convert_model", stopped)
    assert main(["convert", "somewhere", "--model", "out", *dry]) in {130, 143}
    line = "stopped: finished files are kept in out; the same command goes on"
    assert (line in capsys.readouterr().err) is (not dry)


@pytest.mark.e2e
def test_json_holds_plan_and_path(coli: CommandLine, source: Path) -> None:
    done = coli.run("convert", str(source), "--model", "out", "--json", "--no-mtp")
    body = json.loads(done.stdout)
    assert (body["schema_version"], body["path"], body["converted"]) == (1, "out", True)
    assert body["plan"]["layout"] == "stream"
    assert {row["format"] for row in body["plan"]["classes"]} >= {"int8-row", "int4-grouped"}


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("source",), 2, "--model"),
        (("--model", "out"), 2, "no source was named"),
        (("source", "--repo", "o/m", "--model", "out"), 2, "several sources were named"),
        (("source", "--model", ""), 2, "--model is empty"),
        (("", "--model", "out"), 2, "SOURCE is empty"),
        (("--from", " ", "--model", "out"), 2, "--from is empty"),
        (("--repo", "", "--model", "out"), 2, "--repo is empty"),
        (("hf:one-name", "--model", "out"), 2, "'hf:one-name' is not of the form hf:ORG/NAME"),
        (("source", "--model", "~nobody-here/out"), 2, "home directory of nobody"),
        (("~nobody-here/source", "--model", "out"), 3, "cannot be looked at"),
        (("source", "--model", "out", "--xbits", "9"), 2, "--xbits '9' is no number of bits"),
        (("source", "--model", "out", "--layout", "rows"), 2, "--layout 'rows'"),
        (("source", "--model", "out", "--shard-gb", "0"), 2, "--shard-gb 0 is not possible"),
        (("source", "--model", "out", "--revision", "main"), 2, "--revision is only for hf:"),
        (("source", "--model", "out", "--ctx", "5"), 2, "--ctx"),
        (("nothing", "--model", "out"), 3, "no model 'nothing'"),
        (("empty", "--model", "out"), 3, "empty is empty"),
        (("source", "--model", "source"), 1, "is the source itself"),
        (("source", "--model", "a-file"), 1, "a-file"),
        (("source", "--model", "out", "--min-free-gb", "999999"), 1, "GB free"),
    ],
    ids=str,
)
def test_what_cannot_be_is_one_line_and_a_code(
    coli: CommandLine, source: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert source.is_dir()
    (coli.home / "empty").mkdir()
    (coli.home / "a-file").write_text("x")
    done = coli.run("convert", *arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert not list((coli.home / "out").glob("*.safetensors"))


@pytest.mark.e2e
def test_other_options_on_the_same_directory_are_refused(coli: CommandLine, source: Path) -> None:
    assert coli.run("convert", str(source), "--model", "out").returncode == 0
    done = coli.run("convert", str(source), "--model", "out", "--ebits", "8")
    assert done.returncode == 1
    assert "was begun with ebits = not set, now it is '8'" in done.stderr
    again = coli.run("convert", str(source), "--model", "out")
    assert again.returncode == 0
    assert "[1/1]" not in again.stderr


# ---- the hub ------------------------------------------------------------------------------------


@pytest.fixture
def hub(coli: CommandLine) -> Iterator[Hub]:
    published = write_source(coli.home / "published", **BIG).path
    with serve_hub(published) as served:
        served.watched = coli.home / "out" / ".source"
        coli.variables |= served.environment
        yield served


@pytest.mark.e2e
def test_a_model_of_the_hub_is_fetched_file_by_file(coli: CommandLine, hub: Hub) -> None:
    local = coli.run("convert", str(hub.directory), "--model", "local", *SHARDS)
    assert local.returncode == 0, local.stderr
    done = coli.run("convert", "hf:org/m", "--model", "out", *SHARDS)
    assert done.returncode == 0, done.stderr
    assert weight_files(coli.home / "out") == weight_files(coli.home / "local")
    weights = {n: count for n, count in hub.fetched.items() if n.endswith(".safetensors")}
    assert weights == {path.name: 1 for path in hub.directory.glob("*.safetensors")}
    assert not (coli.home / "out" / ".source").exists()
    assert "fetch" in done.stderr
    assert coli.run("run", "--model", "out", "--max-tokens", "2", "hello").returncode == 0


@pytest.mark.e2e
def test_source_files_leave_as_soon_as_nothing_needs_them(coli: CommandLine) -> None:
    # One file of the source for each part of the model, as large models are published.
    flat = write_source(coli.home / "flat", **BIG)
    published = coli.home / "published"
    split_by_layer(flat.path, published)
    with serve_hub(published) as hub:
        hub.watched = coli.home / "out" / ".source"
        coli.variables |= hub.environment
        done = coli.run("convert", "hf:org/m", "--model", "out", "--shard-gb", "0.0001")
        assert done.returncode == 0, done.stderr
        assert len(list(published.glob("*.safetensors"))) > 8
        assert hub.most_files <= 4


def split_by_layer(source: Path, target: Path) -> None:
    from colibri_engine.loader.safetensors import SafetensorsFile
    from tests.fakes.tiny_checkpoint import StoredArray, write_safetensors

    target.mkdir()
    parts: dict[str, dict[str, StoredArray]] = {}
    for path in sorted(source.iterdir()):
        if path.suffix != ".safetensors":
            if "index" not in path.name:
                (target / path.name).write_bytes(path.read_bytes())
            continue
        file = SafetensorsFile(path)
        for name, entry in file.entries.items():
            words = name.split(".")
            key = ".".join(words[1:3]) + (words[5][:1] if ".experts." in name else "")
            part = parts.setdefault(key, {})
            part[name] = (entry.dtype, entry.shape, file.read(entry).tobytes())
        file.close()
    for number, (_, tensors) in enumerate(sorted(parts.items()), 1):
        write_safetensors(target / f"model-{number:05d}-of-{len(parts):05d}.safetensors", tensors)


class SeenMeters:
    """Keeps what bars were told."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, str, int, int | None]] = []

    def update(self, key: str, title: str, done: int, total: int | None) -> None:
        self.seen.append((key, title, done, total))


def test_a_download_has_a_bar_once_there_is_something_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where everything is converted already, none ever begins."""
    monkeypatch.setattr(hub_source, "_POLL_S", 3600)
    meters = SeenMeters()
    files = HubFiles("org/m", "commit", {"a.safetensors": 100})
    fetcher = Fetcher(files, tmp_path, lambda line: None, meters)
    fetcher._show()
    assert meters.seen == []
    (tmp_path / "a.incomplete").write_bytes(b"0123456789")
    fetcher._show()
    assert meters.seen == [("download", "fetched", 10, 100)]


@pytest.mark.e2e
def test_a_file_that_cannot_be_fetched_is_named_and_the_rest_is_kept(
    coli: CommandLine, hub: Hub
) -> None:
    name = "model-00002-of-00003.safetensors"
    hub.fails_whole.add(name)
    done = coli.run("convert", "hf:org/m", "--model", "out", *SHARDS)
    assert done.returncode == 1
    assert f"{name} could not be fetched: " in done.stderr
    hub.fails_whole.clear()
    again = coli.run("convert", "hf:org/m", "--model", "out", *SHARDS)
    assert again.returncode == 0, again.stderr
    assert len(weight_files(coli.home / "out")) > 2


@pytest.mark.e2e
def test_only_headers_are_fetched_for_a_plan(coli: CommandLine, hub: Hub) -> None:
    done = coli.run("convert", "--repo", "org/m", "--outdir", "out", "--dry-run")
    assert done.returncode == 0, done.stderr
    assert "layout stream" in done.stdout
    assert not [name for name in hub.fetched if name.endswith(".safetensors")]
    assert not (coli.home / "out").exists()


@pytest.mark.e2e
def test_a_repository_without_weights_is_refused(coli: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.json").write_text("{}")
    with serve_hub(tmp_path / "empty") as hub:
        coli.variables |= hub.environment
        done = coli.run("convert", "hf:org/m", "--model", "out")
    assert done.returncode == 1
    assert "org/m has no *.safetensors files" in done.stderr


# ---- what is shown ------------------------------------------------------------------------------


def test_bars_show_every_thing_that_goes_on() -> None:
    output = io.StringIO()
    screen = Console(file=output, force_terminal=True, width=80)
    with Progress(TextColumn("{task.description} {task.percentage:.0f}%"), console=screen) as bars:
        meters = console._BarMeters(bars)
        meters.update("total", "converting", 10, 100)
        meters.update("file", "[1/2] a", 5, 10)
        meters.update("file", "[2/2] b", 10, 10)
    shown = output.getvalue()
    assert "converting 10%" in shown
    assert "[2/2] b 100%" in shown


@pytest.mark.parametrize("width", [40, 80, 120])
def test_a_bar_is_one_line_with_whole_figures(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    title = "[1/1] model-00001-of-00001.safetensors, 44.8 GB free"
    output = io.StringIO()
    theme = theme_for(is_light=False)
    screen = Console(file=output, force_terminal=True, width=width, theme=theme)
    monkeypatch.setattr(console, "stderr_console", lambda: screen)
    with console.byte_meters() as meters:
        meters.update("total", "converting", 70_100_000, 140_300_000)
        meters.update("file", title, 70_100_000, 140_300_000)
    plain = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", output.getvalue())
    lines = plain.replace("\r", "\n").split("\n")
    last = [line for line in lines if line.strip()][-2:]
    assert last[0].startswith("converting")
    assert last[1].startswith("[1/1] mod")
    assert all("70.1/140.3 MB" in line for line in last)
    assert all(("0:0" in line or "-:--:--" in line) == (width >= 80) for line in last)
    assert (title in last[1]) == (width == 120)


def test_lines_come_at_the_start_at_the_end_and_now_and_then(
    capsys: pytest.CaptureFixture[str],
) -> None:
    meters = console._LineMeters()
    for done in range(0, 101, 10):
        meters.update("total", "converting", done * 10**6, 10**8)
    meters.update("file", "[1/2] a", 0, 10**6)
    meters.update("file", "[1/2] a", 10**6, 10**6)
    meters.update("file", "[2/2] b", 10**6, 10**6)
    meters.update("file", "[3/3] c", 0, 10**6)
    assert capsys.readouterr().err.splitlines() == [
        "converting: 0.0 of 100.0 MB",
        "converting: 100.0 of 100.0 MB",
        "[1/2] a: 0.0 of 1.0 MB",
        "[1/2] a: 1.0 of 1.0 MB",
        "[3/3] c: 0.0 of 1.0 MB",
    ]
