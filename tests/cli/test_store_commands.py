"""`coli add`, `show` and `rm`: models are named, shown and removed, never more than was said."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.command_line import CommandLine
from tests.fakes.tiny_checkpoint import CHAT_TEMPLATE, write_hf

pytestmark = pytest.mark.e2e


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_hf(tmp_path / "drive" / "tiny", "glm4_moe").path


def listed(coli: CommandLine) -> list[dict[str, Any]]:
    models: list[dict[str, Any]] = json.loads(coli.run("list", "--json").stdout)["models"]
    return models


def pulled(coli: CommandLine, name: str) -> Path:
    """Return the directory of a model whose files are the store's own."""
    directory = coli.home / "data" / "colibri" / "models" / name
    write_hf(directory)
    manifest = {"family": "llama", "target": ".", "source": "hf:a/b", "num_bytes": 1000}
    manifest |= {"num_experts": None, "license": "mit"}
    (directory / "model.json").write_text(json.dumps(manifest))
    return directory


def test_an_added_model_is_listed_shown_and_run_by_its_name(coli: CommandLine, model: Path) -> None:
    done = coli.run("add", "mine", str(model), "--json")
    assert done.returncode == 0, done.stderr
    (row,) = listed(coli)
    assert (row["name"], row["family"], row["path"]) == ("mine", "glm4_moe", str(model))
    assert row["num_experts"] > 0
    assert json.loads(done.stdout)["bytes"] == row["num_bytes"] > 0
    shown = json.loads(coli.run("show", "mine", "--json").stdout)
    assert shown["model"]["num_experts"] == row["num_experts"]
    assert (shown["source"], shown["bytes"]) == ("added", row["num_bytes"])
    ran = coli.run(
        "run", "--model", "mine", "--no-template", "--max-tokens", "2", "--json", "hello"
    )
    assert json.loads(ran.stdout)["usage"]["completion_tokens"] > 0


def test_the_texts_of_a_model_are_printed_alone(coli: CommandLine, model: Path) -> None:
    assert coli.run("show", str(model), "--template").stdout == CHAT_TEMPLATE + "\n"
    config = json.loads(coli.run("show", str(model), "--model-config").stdout)
    assert config["model_type"] == "glm4_moe"
    done = coli.run("show", str(model), "--model-config", "--template")
    assert (done.returncode, done.stdout) == (2, "")


def test_what_is_shown_names_files_template_and_licence(coli: CommandLine, model: Path) -> None:
    (model / "LICENSE").write_text("Do as you like.")
    text = coli.run("show", str(model)).stdout
    assert "model.safetensors" in text
    assert f"{len(CHAT_TEMPLATE):,} characters" in text
    assert "LICENSE" in text


def test_an_added_model_is_forgotten_and_its_files_stay(coli: CommandLine, model: Path) -> None:
    coli.run("add", "mine", str(model))
    before = sorted(model.iterdir())
    done = coli.run("rm", "mine")
    assert done.returncode == 0
    assert str(model) in done.stdout
    assert listed(coli) == []
    assert sorted(model.iterdir()) == before
    assert coli.run("rm", "mine").returncode == 3


def test_files_are_removed_only_after_a_yes(coli: CommandLine) -> None:
    directory = pulled(coli, "mine")
    (directory / ".coli_usage").write_bytes(b"x")
    done = coli.run("rm", "mine")
    assert (done.returncode, done.stdout) == (2, "")
    assert ".coli_usage" in done.stderr
    assert "--yes" in done.stderr
    assert (directory / ".coli_usage").exists()
    assert coli.run("rm", "mine", "-y").returncode == 0
    assert not directory.exists()
    assert [path.name for path in directory.parent.iterdir()] == [".mine.lock"]


def test_names_and_places_that_cannot_be_are_refused(coli: CommandLine, model: Path) -> None:
    pulled(coli, "mine")
    for arguments, code, named in (
        (("../up", str(model)), 2, "../up"),
        (("mine", str(model)), 2, "pulled"),
        (("other", "nowhere"), 3, "nowhere"),
        (("other", "a" * 5000), 3, "there is nothing at"),
        (("other", str(coli.home / "config")), 1, "config"),
    ):
        (coli.home / "config").mkdir(exist_ok=True)
        done = coli.run("add", *arguments)
        assert (done.returncode, done.stdout) == (code, ""), arguments
        assert named in done.stderr
    assert [row["name"] for row in listed(coli)] == ["mine"]


def test_a_model_whose_drive_is_away_is_named_and_can_be_forgotten(
    coli: CommandLine, model: Path
) -> None:
    coli.run("add", "mine", str(model))
    model.rename(model.with_name("moved"))
    assert listed(coli) == []
    assert str(model) in coli.run("list").stderr
    done = coli.run("run", "--model", "mine", "hi")
    assert done.returncode == 3
    assert str(model) in done.stderr
    assert coli.run("rm", "mine").returncode == 0


@pytest.fixture
def server(coli: CommandLine, model: Path) -> Any:  # noqa: ANN401
    coli.variables["XDG_RUNTIME_DIR"] = str(coli.home / "run")
    (coli.home / "run").mkdir(mode=0o700)
    coli.run("add", "mine", str(model))
    process = coli.start("serve", "--model", "mine", "--port", "0")
    assert process.stderr is not None
    line = ""
    while "ready:" not in line:
        line = process.stderr.readline().decode()
        assert line, "the server ended"
    yield process
    process.terminate()
    process.communicate(timeout=60)


def test_a_model_that_is_served_is_not_removed(
    coli: CommandLine, server: subprocess.Popen[bytes]
) -> None:
    assert server.poll() is None
    done = coli.run("rm", "mine")
    assert (done.returncode, done.stdout) == (1, "")
    assert "in use by the server at http://127.0.0.1:" in done.stderr
    assert [row["name"] for row in listed(coli)] == ["mine"]
