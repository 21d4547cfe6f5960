"""Copies on a second disk: the most used files first, whole or not there, checked to the byte."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from colibri_plugins._mirror_plan import WeightFile, choose, read_usage, weight_files
from tests.fakes.command_line import CommandLine
from tests.fakes.tiny_checkpoint import write_hf

pytestmark = pytest.mark.e2e


@pytest.fixture
def coli(tmp_path: Path) -> CommandLine:
    return CommandLine(tmp_path)


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = write_hf(tmp_path / "model", "glm4_moe", num_shards=6).path
    lines = ["-1 2 8", "-2 1 1", "1 0 500", "1 1 20"]
    (path / ".coli_usage").write_text("\n".join(lines) + "\n")
    return path


def mirror(
    coli: CommandLine, what: str, model: Path, *options: str
) -> tuple[int, dict[str, Any], str]:
    target = ["--mirror", str(coli.home / "copy")]
    target += [] if what == "verify" else ["--reserve-gib", "0"]
    done = coli.run("mirror", what, "--model", str(model), "--json", *target, *options)
    assert "Traceback" not in done.stderr
    return done.returncode, json.loads(done.stdout) if done.stdout else {}, done.stderr


def part(name: str, nbytes: int, whole: dict[int, int], parts: dict[int, int]) -> WeightFile:
    return WeightFile(
        Path(name),
        nbytes,
        {(0, expert): size for expert, size in whole.items()},
        {(0, expert): size for expert, size in parts.items()},
    )


def test_the_worth_of_a_file_is_what_is_used_of_it_by_its_size() -> None:
    small = part("small", 10, {0: 5}, {})
    large = part("large", 100, {0: 5, 1: 5}, {})
    unused = part("unused", 10, {7: 10}, {})
    chosen = choose([large, unused, small], {(0, 0): 10, (0, 1): 1}, 1000)
    assert [(file.path.name, worth) for file, worth in chosen] == [("small", 5.0), ("large", 0.55)]


def test_half_an_expert_counts_only_beside_its_gate() -> None:
    gate = part("gate", 100, {0: 10}, {})
    rest = part("rest", 10, {}, {0: 10})
    usage = {(0, 0): 1}
    assert [f.path.name for f, _ in choose([rest, gate], usage, 1000)] == ["gate", "rest"]
    assert choose([rest], usage, 1000) == []
    assert choose([rest, gate], usage, 50) == []  # the gate does not fit, so neither does any


def test_the_history_is_read_with_and_without_its_head(tmp_path: Path) -> None:
    file = tmp_path / "usage"
    assert read_usage(file) == {}
    file.write_text("0 1 5\n2 3 7\n")
    assert read_usage(file) == {(0, 1): 5, (2, 3): 7}
    file.write_text("-1 4 8\n-2 1 3815245270\n0 1 5\n")
    assert read_usage(file) == {(0, 1): 5}


def test_every_byte_of_an_expert_is_counted_once(model: Path) -> None:
    files = weight_files([model])
    counted = sum(sum(f.whole.values()) + sum(f.parts.values()) for f in files)
    config = json.loads((model / "config.json").read_text())
    size = 3 * config["hidden_size"] * config["moe_intermediate_size"] * 4
    assert counted == config["n_routed_experts"] * size


def test_without_a_history_nothing_is_planned(coli: CommandLine, model: Path) -> None:
    (model / ".coli_usage").unlink()
    code, body, _ = mirror(coli, "plan", model)
    assert (code, body["admitted"], body["reason"]) == (2, False, "usage_history_missing")
    assert body["usage_history_present"] is False


def test_a_plan_adds_up_and_writes_nothing(coli: CommandLine, model: Path) -> None:
    code, body, _ = mirror(coli, "plan", model)
    assert (code, body["admitted"], body["usage_selections"]) == (0, True, 520)
    assert body["selected_bytes"] == sum(row["bytes"] for row in body["files"]) > 0
    assert body["projected_free_bytes"] == body["free_bytes"] - body["remaining_bytes"]
    assert "same disk" in body["warnings"][0]
    assert not (coli.home / "copy").exists()


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("--budget-gib", "0.000001"), "no_usage_ranked_shards_fit_the_budget"),
        (("--reserve-gib", "900000"), "free_space_reserve"),
    ],
)
def test_what_does_not_fit_is_not_admitted(
    coli: CommandLine, model: Path, options: tuple[str, str], reason: str
) -> None:
    for what in ("plan", "stage"):
        code, body, _ = mirror(coli, what, model, *options)
        assert (code, body["reason"]) == (2, reason)
    assert not (coli.home / "copy").exists()


def test_copies_are_made_checked_and_used_by_the_engine(coli: CommandLine, model: Path) -> None:
    before = {file.name: file.read_bytes() for file in model.iterdir()}
    code, body, _ = mirror(coli, "stage", model)
    assert code == 0
    copy = coli.home / "copy"
    names = {row["name"] for row in body["files"]}
    assert {file.name for file in copy.iterdir()} == {*names, ".colibri-mirror.json"}
    assert all((copy / name).read_bytes() == before[name] for name in names)
    assert {file.name: file.read_bytes() for file in model.iterdir()} == before
    code, body, _ = mirror(coli, "verify", model)
    assert (code, body["ready"], body["verified"]) == (0, True, len(names))
    coli.variables["COLI_MODEL_MIRROR"] = str(copy)
    checks = json.loads(coli.run("doctor", "--model", str(model), "--json").stdout)["checks"]
    (row,) = [row for row in checks if row["id"] == "storage.mirror"]
    assert (row["status"], row["summary"]) == ("pass", f"{len(names)} copies")


def test_staging_again_keeps_what_is_right_and_replaces_what_is_not(
    coli: CommandLine, model: Path
) -> None:
    _, body, _ = mirror(coli, "stage", model)
    copy = coli.home / "copy"
    first, second, *_ = [copy / row["name"] for row in body["files"]]
    kept = first.stat().st_mtime_ns
    second.write_bytes(b"x" * second.stat().st_size)
    (copy / ".colibri-mirror.json").unlink()
    assert mirror(coli, "stage", model)[0] == 0
    assert first.stat().st_mtime_ns == kept
    assert second.read_bytes() == (model / second.name).read_bytes()
    assert mirror(coli, "verify", model)[0] == 0


def test_a_flipped_byte_is_found_and_named(coli: CommandLine, model: Path) -> None:
    _, body, _ = mirror(coli, "stage", model)
    file = coli.home / "copy" / body["files"][0]["name"]
    content = bytearray(file.read_bytes())
    content[-1] ^= 1
    file.write_bytes(content)
    code, body, said = mirror(coli, "verify", model)
    assert (code, body["ready"], body["failed"]) == (4, False, 1)
    assert file.name in body["failures"][0]
    assert file.name in said


def test_a_model_that_changed_since_is_found(coli: CommandLine, model: Path) -> None:
    _, body, _ = mirror(coli, "stage", model)
    name = body["files"][0]["name"]
    (model / name).write_bytes((model / name).read_bytes() + b"\0")
    assert mirror(coli, "verify", model)[0] == 4
    (model / name).unlink()
    assert "not in the model" in mirror(coli, "verify", model)[2]


@pytest.mark.parametrize("name", ["../model/config.json", "/etc/passwd", "..", "", "a\\b"])
def test_a_receipt_that_names_other_places_is_refused(
    coli: CommandLine, model: Path, name: str
) -> None:
    mirror(coli, "stage", model)
    receipt = coli.home / "copy" / ".colibri-mirror.json"
    row = {"name": name, "bytes": 1, "sha256": ""}
    receipt.write_text(json.dumps({"schema_version": 1, "files": [row]}))
    code, body, said = mirror(coli, "verify", model)
    assert (code, body) == (1, {})
    assert "no file of the mirror" in said


def test_without_a_receipt_there_is_nothing_to_verify(coli: CommandLine, model: Path) -> None:
    code, body, said = mirror(coli, "verify", model)
    assert (code, body) == (1, {})
    assert "no receipt" in said


def test_the_models_own_folder_is_no_mirror(coli: CommandLine, model: Path) -> None:
    done = coli.run(
        "mirror", "stage", "--model", str(model), "--mirror", str(model), "--reserve-gib", "0"
    )
    assert done.returncode == 1
    assert "own file" in done.stderr
    shutil.rmtree(coli.home / "copy", ignore_errors=True)


def test_wrong_use_is_refused(coli: CommandLine, model: Path) -> None:
    done = coli.run("mirror", "plan", "--mirror", "m")
    assert done.returncode == 3
    assert "--model" in done.stderr
    done = coli.run("mirror", "plan", "--model", str(model))
    assert done.returncode == 2
    assert "--mirror" in done.stderr
    done = coli.run("mirror", "plan", "--model", str(model), "--mirror", "m", "--budget-gib", "0")
    assert done.returncode == 2
    assert "--budget-gib" in done.stderr


def test_a_damaged_history_or_header_is_named(coli: CommandLine, model: Path) -> None:
    (model / ".coli_usage").write_text("1 2\n")
    assert "line 1" in mirror(coli, "plan", model)[2]
    (model / ".coli_usage").write_text("1 0 5\n")
    shard = model / "model-00002-of-00006.safetensors"
    shard.write_bytes(b"\x10" + bytes(7) + b"not json at all!")
    code, _, said = mirror(coli, "plan", model)
    assert code == 1
    assert shard.name in said
