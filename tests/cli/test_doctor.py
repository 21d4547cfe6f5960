"""`coli doctor`: the order of its checks, what each finds, and that it agrees with the loader."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes.command_line import CommandLine
from tests.fakes.tiny_checkpoint import FAMILIES, write_hf, write_json
from tests.fakes.tiny_gguf import write_gguf_model

pytestmark = pytest.mark.e2e

ORDER = [
    "model.path",
    "model.config",
    "model.tokenizer",
    "storage.persistence",
    "engine.binary",
    "accelerator.gpu",
    "model.shards",
    "model.container",
    "model.required",
    "storage.disk",
    "memory.ram",
    "placement.plan",
    "storage.ssd_probe",
]


def checked(
    coli: CommandLine, model: Path | str, *options: str
) -> tuple[int, dict[str, dict[str, Any]], dict[str, Any]]:
    done = coli.run("doctor", "--model", str(model), "--json", *options)
    body = json.loads(done.stdout)
    assert "Traceback" not in done.stderr
    return done.returncode, {row["id"]: row for row in body["checks"]}, body


def loads(coli: CommandLine, model: Path) -> bool:
    done = coli.run("run", "--model", str(model), "--no-template", "--max-tokens", "1", "hello")
    return done.returncode == 0


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_hf(tmp_path / "tiny", "glm4_moe", num_shards=3).path


def test_a_healthy_model_passes_in_the_documented_order(coli: CommandLine, model: Path) -> None:
    code, checks, body = checked(coli, model)
    assert code == 0
    assert list(checks)[: len(ORDER)] == ORDER
    assert body["schema_version"] == 1
    assert (body["model"], body["mode"]) == (str(model), "standard")
    failing = {name for name, row in checks.items() if row["status"] == "fail"}
    assert failing == set()
    assert checks["model.config"]["details"]["num_experts"] > 0


@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_that_loads_is_found_usable(
    coli: CommandLine, tmp_path: Path, family: str
) -> None:
    path = write_hf(tmp_path / "m", family).path
    assert (checked(coli, path)[0] == 0) == loads(coli, path) == True  # noqa: E712


def without_layer(model: Path) -> None:
    shard = model / "model-00002-of-00003.safetensors"
    shard.unlink()


def truncated(model: Path) -> None:
    shard = model / "model-00003-of-00003.safetensors"
    shard.write_bytes(shard.read_bytes()[:-7])


def garbled_header(model: Path) -> None:
    (model / "model-00001-of-00003.safetensors").write_bytes(b"\xff" * 64)


def no_tokenizer(model: Path) -> None:
    (model / "tokenizer.json").unlink()


def no_config(model: Path) -> None:
    (model / "config.json").unlink()


def unknown_family(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    write_json(model / "config.json", {**config, "model_type": "quux_9"})


def config_is_a_list(model: Path) -> None:
    write_json(model / "config.json", [])


def unsupported_value(model: Path) -> None:
    config = json.loads((model / "config.json").read_text())
    write_json(model / "config.json", {**config, "hidden_act": "relu"})


def with_header(shard: Path, change: Callable[[dict[str, Any]], None]) -> int:
    """Change the header of a file of weights; returns how many bytes of weights it has."""
    data = shard.read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    change(header)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    shard.write_bytes(len(text).to_bytes(8, "little") + text + data[end:])
    return len(data) - end


def overlapping(model: Path) -> None:
    def change(header: dict[str, Any]) -> None:
        rows = [row for name, row in header.items() if name != "__metadata__"]
        _, second, *_ = sorted(rows, key=lambda row: row["data_offsets"][0])
        second["data_offsets"] = [offset - 4 for offset in second["data_offsets"]]

    with_header(model / "model-00001-of-00003.safetensors", change)


def without_head(model: Path) -> None:
    for shard in model.glob("*.safetensors"):
        with_header(
            shard,
            lambda header: header.update(
                {name.replace("lm_head", "lm_foot"): header.pop(name) for name in list(header)}
            ),
        )
    index = model / "model.safetensors.index.json"
    if index.exists():
        index.write_text(index.read_text().replace("lm_head", "lm_foot"))


def twice_there(model: Path) -> None:
    (model / "model-00002-of-00003.safetensors").write_bytes(
        (model / "model-00001-of-00003.safetensors").read_bytes()
    )


@pytest.mark.parametrize(
    ("damage", "check", "named"),
    [
        (overlapping, "model.shards", "overlap"),
        (without_head, "model.shards", "lm_head"),
        (twice_there, "model.shards", "model-00002-of-00003"),
        (without_layer, "model.shards", "model-00002-of-00003"),
        (truncated, "model.shards", "model-00003-of-00003"),
        (garbled_header, "model.shards", "model-00001-of-00003"),
        (no_tokenizer, "model.tokenizer", "tokenizer"),
        (no_config, "model.shards", "config.json"),
        (unknown_family, "model.config", "quux_9"),
        (config_is_a_list, "model.config", "no JSON object"),
        (unsupported_value, "model.config", "relu"),
    ],
)
def test_a_damage_fails_the_check_that_names_it_and_the_loader_agrees(
    coli: CommandLine, model: Path, damage: Callable[[Path], None], check: str, named: str
) -> None:
    damage(model)
    code, checks, body = checked(coli, model)
    assert code == 1
    assert body["status"] == "error"
    assert checks[check]["status"] == "fail"
    assert named in checks[check]["summary"]
    assert set(ORDER) <= set(checks)
    assert not loads(coli, model)


UNREADABLE = Path("/sys/class/net/lo/speed")  # of some size, and every read of it fails


@pytest.mark.skipif(not UNREADABLE.exists(), reason="hardware: no /sys")
def test_a_drive_that_cannot_be_read_is_not_taken_for_an_incomplete_download(
    coli: CommandLine, model: Path
) -> None:
    shard = model / "model-00003-of-00003.safetensors"
    shard.unlink()
    shard.symlink_to(UNREADABLE)
    code, checks, _ = checked(coli, model)
    assert code == 1
    summary = checks["model.shards"]["summary"]
    assert f"cannot read {shard} at byte 0" in summary
    assert not any(word in summary for word in ("incomplete", "damaged", "truncated"))
    assert set(ORDER) <= set(checks)
    assert checks["engine.binary"]["status"] == "pass"
    done = coli.run("run", "--model", str(model), "--no-template", "hello")
    assert done.returncode == 3
    assert f"cannot read {shard} at byte 0" in done.stderr
    assert f"check the disk of {shard.name}" in done.stderr


def test_no_weights_are_read(coli: CommandLine, model: Path) -> None:
    shard = model / "model-00003-of-00003.safetensors"
    too_many = 1 << 40  # reading a TiB of nothing takes longer than the command may
    begin = with_header(shard, lambda _: None)
    row = {"dtype": "U8", "shape": [too_many], "data_offsets": [begin, begin + too_many]}
    with_header(shard, lambda header: header.update(more=row))
    with shard.open("r+b") as file:
        file.truncate(shard.stat().st_size + too_many)
    _, checks, _ = checked(coli, model, "--deep")
    assert checks["model.shards"]["status"] == "pass"
    assert checks["model.container"]["status"] == "pass"


def test_a_budget_that_holds_too_little_fails_and_the_plan_says_so(
    coli: CommandLine, model: Path
) -> None:
    code, checks, _ = checked(coli, model, "--ram", "0.2")
    assert code == 1
    assert checks["memory.ram"]["status"] == "fail"
    assert "--ram" in checks["memory.ram"]["summary"]


def test_a_missing_tensor_is_named_and_the_loader_agrees(coli: CommandLine, tmp_path: Path) -> None:
    path = tmp_path / "m.gguf"
    write_gguf_model(path, "llama", num_hidden_layers=3, leave_out=("blk.1.attn_q.weight",))
    code, checks, _ = checked(coli, path)
    assert code == 1
    assert "layer 1: self_attn.q_proj.weight" in checks["model.required"]["summary"]
    assert not loads(coli, path)


def test_without_a_model_it_says_how_to_name_one(coli: CommandLine) -> None:
    done = coli.run("doctor", "--json")
    body = json.loads(done.stdout)
    assert (done.returncode, body["model"]) == (2, None)
    assert [row["id"] for row in body["checks"]] == ["config.arguments"]
    assert "COLI_MODEL" in body["checks"][0]["summary"]


def test_a_model_that_does_not_exist_still_gets_every_check(coli: CommandLine) -> None:
    code, checks, _ = checked(coli, "nowhere")
    assert code == 1
    assert list(checks)[: len(ORDER)] == ORDER
    assert checks["model.path"]["status"] == "fail"
    assert checks["engine.binary"]["status"] == "pass"


def test_a_config_of_brackets_alone_fails_its_check(coli: CommandLine, model: Path) -> None:
    (model / "config.json").write_text("[" * 200_000)
    done = coli.run("doctor", "--model", str(model))
    assert done.returncode == 1
    assert "unexpected" not in done.stderr
    assert f"{model / 'config.json'}" in done.stdout


def test_a_name_of_any_bytes_gets_every_check(coli: CommandLine) -> None:
    done = subprocess.run(
        [*map(os.fsencode, coli.argv), b"doctor", b"--model", b"\xff\xfe"],
        stdin=subprocess.DEVNULL, capture_output=True, env=coli.environment, cwd=coli.home,
        check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert b"model.path" in done.stdout
    assert b"unexpected" not in done.stderr


def test_deep_checks_numbering_and_index(coli: CommandLine, model: Path) -> None:
    _, checks, body = checked(coli, model, "--deep")
    assert body["mode"] == "deep"
    assert checks["model.shard_sequence"]["summary"] == "all 3 files"
    assert checks["model.index"]["status"] == "pass"
    (model / "model-00009-of-00009.safetensors").write_bytes(
        (model / "model-00001-of-00003.safetensors").read_bytes()
    )
    code, checks, _ = checked(coli, model, "--deep")
    assert code == 1
    assert "several numberings" in checks["model.shard_sequence"]["summary"]


def test_an_index_that_names_what_is_not_there_is_found(coli: CommandLine, model: Path) -> None:
    index = model / "model.safetensors.index.json"
    index.write_text("{")
    _, checks, _ = checked(coli, model, "--deep")
    assert checks["model.index"]["status"] == "fail"


@pytest.mark.parametrize(
    ("line", "status"),
    [("v2 3.5 {device}", "pass"), ("v2 3.5 1", "skip"), ("v1 3", "skip"), ("v2 -1 0", "skip")],
)
def test_the_measurement_of_the_drive_is_read(
    coli: CommandLine, model: Path, line: str, status: str
) -> None:
    (model / ".coli_ssd").write_text(line.format(device=model.stat().st_dev) + "\n")
    _, checks, _ = checked(coli, model)
    assert checks["storage.ssd_probe"]["status"] == status


def test_a_port_in_use_and_a_misspelt_variable_are_warnings(coli: CommandLine, model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        coli.variables |= {"COLI_PORT": str(server.getsockname()[1]), "COLI_MODLE": "x"}
        code, checks, _ = checked(coli, model)
    assert code == 0
    assert checks["server.port"]["status"] == "warn"
    assert "COLI_MODEL" in checks["settings.variables"]["summary"]


def test_files_of_keys_that_others_can_read_are_warnings(coli: CommandLine, model: Path) -> None:
    assert checked(coli, model)[1]["settings.keys"]["summary"] == "none is used"
    keys = coli.home / "keys"
    keys.write_text("secret-one")
    keys.chmod(0o600)
    project = coli.home / "colibri.toml"
    project.write_text(f"[serve]\napi_key_file = '{keys}'\nupstream_api_key = 'secret-two'\n")
    project.chmod(0o640)
    code, checks, body = checked(coli, model)
    found = checks["settings.keys"]
    assert (code, found["status"]) == (0, "warn")
    assert f"chmod 600 {project}" in found["summary"]
    assert str(keys) not in found["summary"]
    assert "secret" not in json.dumps(body)
    project.chmod(0o600)
    assert checked(coli, model)[1]["settings.keys"]["summary"] == "2 files of keys"


def test_the_plan_is_looked_at_once_the_machine_was_measured(
    coli: CommandLine, model: Path
) -> None:
    coli.variables["XDG_CACHE_HOME"] = str(coli.home / "cache")
    _, checks, _ = checked(coli, model)
    assert checks["placement.plan"]["status"] == "skip"
    assert not (coli.home / "cache").exists()
    assert coli.run("plan", str(model)).returncode == 0
    _, checks, _ = checked(coli, model)
    assert checks["placement.plan"]["status"] in {"pass", "warn"}
    assert checks["placement.plan"]["details"]["mode"] == "resident"


def test_the_text_has_one_line_per_check_and_no_colour_when_piped(
    coli: CommandLine, model: Path
) -> None:
    coli.variables["COLUMNS"] = "40"
    done = coli.run("doctor", "--model", str(model))
    lines = done.stdout.splitlines()
    assert lines[0].startswith("[pass] model.path")
    assert lines[-1].startswith("result: usable")
    assert "\x1b" not in done.stdout
    assert len(lines) == len(checked(coli, model)[1]) + 1


def test_the_key_of_the_server_is_in_no_output(coli: CommandLine, model: Path) -> None:
    coli.variables["COLI_API_KEY"] = "k-UNIQUE-123"
    done = coli.run("doctor", "--model", str(model), "-vv", "--deep")
    assert "k-UNIQUE-123" not in done.stdout + done.stderr


def test_checks_of_plugins_are_run_and_one_that_breaks_fails(
    coli: CommandLine, model: Path
) -> None:
    folder = coli.home / "config" / "colibri" / "plugins"
    folder.mkdir(parents=True)
    (folder / "mine.py").write_text(
        "from colibri_cli.plugin_api import CheckResult, CheckStatus, hookimpl\n"
        "@hookimpl\n"
        "def register_doctor_checks(register):\n"
        "    register('mine.good', lambda c: CheckResult(CheckStatus.WARN, str(c.model_path)))\n"
        "    register('mine.bad', lambda c: 1 / 0)\n"
    )
    code, checks, _ = checked(coli, model)
    assert code == 1
    assert checks["mine.good"]["summary"] == str(model)
    assert "ZeroDivisionError" in checks["mine.bad"]["summary"]
