"""`coli plan` as a process: every kind of model, what does not fit, other machines, bad values."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from colibri_cli.tuning.profile import fingerprint
from tests.engine.conversion.rig import write_source
from tests.fakes.command_line import CommandLine

pytestmark = pytest.mark.e2e


@pytest.fixture
def coli(tmp_path: Path, tmp_path_factory: pytest.TempPathFactory) -> CommandLine:
    """With measured rates that all tests of this file share."""
    cache = tmp_path_factory.getbasetemp() / "plan-cache"
    return CommandLine(tmp_path, {"XDG_CACHE_HOME": str(cache)})


@pytest.fixture
def source(coli: CommandLine) -> Path:
    return write_source(coli.home / "source").path


@pytest.fixture
def container(coli: CommandLine, source: Path) -> Path:
    done = coli.run("convert", str(source), "--model", "out", "--quiet")
    assert done.returncode == 0, done.stderr
    return coli.home / "out"


def test_a_table_with_all_terms(coli: CommandLine, container: Path) -> None:
    done = coli.run("plan", str(container), "--what-if", "ram=64,ctx=32768")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[0].startswith("model    glm4_moe, ")
    titles = {line.split("  ")[0].strip() or line.strip().split("  ")[0] for line in lines}
    assert {"runs", "memory budget", "decode", "prefill", "limited by", "conversations"} <= titles
    assert max(map(len, lines)) <= 80
    assert any(set(line) == {"="} for line in lines)  # all experts in memory
    said = done.stderr.splitlines()
    assert [line for line in said if "of the memory is in use" not in line] == []


@pytest.mark.parametrize("columns", [40, 60])
def test_a_pipe_has_the_width_that_is_asked_for(
    coli: CommandLine, container: Path, columns: int
) -> None:
    coli.variables["COLUMNS"] = str(columns)
    lines = coli.run("plan", str(container), "--explain").stdout.splitlines()
    assert max(map(len, lines)) <= columns
    coli.variables["COLUMNS"] = "wide"
    assert max(map(len, coli.run("plan", str(container)).stdout.splitlines())) > columns


def test_json_adds_up(coli: CommandLine, container: Path) -> None:
    done = coli.run("plan", "--model", str(container), "--json", "--cap", "2", "--ctx", "512")
    body = json.loads(done.stdout)
    assert body["schema_version"] == body["version"] == 2
    model = body["model"]
    assert model["name"] == "out"
    assert (model["path"], model["shards"]) == (str(container), len(weight_files(container)))
    assert sum(model["expert_bytes_by_layer"].values()) == model["expert_bytes"]
    assert model["per_cap_bytes"] * model["experts"] == model["expert_bytes"]
    (plan,) = body["plans"]
    assert (plan["label"], plan["runs"], plan["mode"]) == ("now", True, "streamed")
    ram, disk, vram = (body["tiers"][tier] for tier in ("ram", "disk", "vram"))
    assert vram == {
        "devices": [], "budget_bytes": 0, "hot_expert_bytes": 0, "expert_capacity": 0,
        "requires_host_backing": False, "experts": 0,
    }  # fmt: skip
    assert disk["available_bytes"] > 0
    assert disk["model_bytes"] == sum(file.stat().st_size for file in weight_files(container))
    assert ram["cache_slots_per_layer"] == ram["max_slots_per_layer"] == 2
    assert ram["experts"] + disk["experts"] == model["expert_count"]
    experts = vram["hot_expert_bytes"] + ram["warm_expert_bytes"] + disk["cold_expert_bytes"]
    assert experts == model["expert_bytes"]
    parts = ("dense", "runtime", "expert_cache")
    assert sum(ram[f"{part}_bytes"] for part in parts) == ram["budget_bytes"]
    assert body["bottleneck_class"] in {"disk", "memory", "compute"}
    assert body["projected_hit_rate"] == plan["hit_rate"]
    assert body["cpu"]["physical_cores"] >= body["cpu"]["sockets"] >= 1
    assert body["memory"] == {"unified": False, "available_bytes": ram["available_bytes"]}
    assert "2 experts of each layer stay in memory: --cap allows 2" in body["decisions"]
    terms = plan["decode"]["terms"]
    hidden = terms.pop("hidden_s")
    assert plan["decode"]["seconds"] == pytest.approx(sum(terms.values()) - hidden)
    assert 0 < plan["hit_rate"] < 1


def weight_files(folder: Path) -> list[Path]:
    return list(folder.glob("*.safetensors"))


@pytest.mark.parametrize(
    ("flags", "policy"),
    [
        ((), ("quality", True, True)),
        (("--repin", "64"), ("balanced", True, True)),
        (("--expert-topk", "1"), ("experimental-fast", True, False)),
        (("--numerics", "fast"), ("experimental-fast", False, True)),
        (("--kv-dtype", "bf16"), ("experimental-fast", False, True)),
    ],
    ids=str,
)
def test_the_policy_says_what_the_settings_keep(
    coli: CommandLine, source: Path, flags: tuple[str, ...], policy: tuple[str, bool, bool]
) -> None:
    found = json.loads(coli.run("plan", str(source), "--json", *flags).stdout)["policy"]
    name, keeps_numbers, keeps_router = policy
    assert found == {
        "name": name,
        "preserve_quantization": keeps_numbers,
        "preserve_router": keeps_router,
        "quality_preserving": keeps_numbers and keeps_router,
    }


@pytest.mark.parametrize(
    ("line", "state", "gbs"),
    [
        (None, "absent", None),
        ("v2 2.75 {device}", "ok", 2.75),
        ("2.75", "legacy", None),
        ("v2 2.75 1{device}", "foreign", None),
        ("v2 fast {device}", "garbage", None),
        ("v2 2000 {device}", "garbage", None),
    ],
)
def test_the_kept_measurement_of_the_drive_is_told(
    coli: CommandLine, source: Path, line: str | None, state: str, gbs: float | None
) -> None:
    if line is not None:
        (source / ".coli_ssd").write_text(line.format(device=source.stat().st_dev) + "\n")
    body = json.loads(coli.run("plan", str(source), "--json").stdout)
    assert (body["ssd_probe_state"], body["ssd_probe_gbs"]) == (state, gbs)


def test_what_tuning_found_is_told_unless_it_was_set(coli: CommandLine, source: Path) -> None:
    mark = fingerprint(source)
    profiles = coli.home / "config/colibri/tuning"
    profiles.mkdir(parents=True)
    body = {
        "schema_version": 1, "fingerprint": mark, "accepted": True,
        "winner": {"settings": {"num_threads": "1"}},
    }  # fmt: skip
    (profiles / f"{mark}.json").write_text(json.dumps(body))
    tune = json.loads(coli.run("plan", str(source), "--json").stdout)["tune"]
    assert tune["COLI_NUM_THREADS"]["value"] == "1"
    assert "--auto-tier" in tune["COLI_NUM_THREADS"]["reason"]
    told = json.loads(coli.run("plan", str(source), "--json", "--threads", "2").stdout)
    assert told["tune"] == {}
    assert told["cpu"]["thread_policy"] == "2 threads, as --threads says"


def test_reasons_are_told_on_request(coli: CommandLine, container: Path) -> None:
    assert "policy" not in coli.run("plan", str(container)).stdout
    told = coli.run("plan", str(container), "--explain", "--cap", "2").stdout
    assert "policy: quality, keeps what the model would say" in told
    assert "2 experts of each layer stay in memory: --cap allows 2" in told


def test_a_model_that_does_not_fit_says_what_is_missing(coli: CommandLine, container: Path) -> None:
    done = coli.run("plan", str(container), "--ram", "0.2")
    assert done.returncode == 0, done.stderr
    assert "does not fit" in done.stdout
    assert "the least that runs is" in done.stdout
    assert "raise --ram" in done.stdout
    body = json.loads(coli.run("plan", str(container), "--ram", "0.2", "--json").stdout)
    (plan,) = body["plans"]
    assert plan["runs"] is False
    budget = plan["tiers"]["ram"]["budget_bytes"]
    assert plan["missing_bytes"] == plan["needed_bytes"] - budget > 0
    assert body["tiers"]["disk"]["cold_expert_bytes"] == body["model"]["expert_bytes"]
    assert (body["bottleneck_class"], body["projected_hit_rate"]) == ("memory", None)
    assert any("the least that runs is" in warning for warning in body["warnings"])


def test_what_cannot_be_streamed_is_told_to_be_converted(coli: CommandLine, source: Path) -> None:
    done = coli.run("plan", str(source), "--ram", "0.2")
    assert done.returncode == 0, done.stderr
    assert "does not fit" in done.stdout
    assert "coli convert" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 3, "no model was given"),
        (("nothing",), 3, "no model 'nothing'"),
        (("source", "--model", "source"), 2, "two models were named"),
        (("source", "--ctx", "-1"), 2, "--ctx"),
        (("source", "--ram", "much"), 2, "'much'"),
        (("source", "--what-if", "ram"), 2, "'ram' is not of the form NAME=VALUE"),
        (("source", "--what-if", "ram=lots"), 2, "'lots'"),
        (("source", "--what-if", "ram=0"), 2, "'0' is no amount"),
        (("source", "--what-if", "ram=64GB/s"), 2, "64 or 64GB"),
        (("source", "--what-if", "rum=64"), 2, "did you mean ram?"),
        (("source", "--what-if", "ctx=many"), 2, "'many'"),
        (("source", "--what-if", "slots=99"), 2, "99"),
        (("source", "--what-if", "disk=7,disk=8"), 2, "names disk twice"),
        (("source", "--engine-bin", "x"), 2, "--engine-bin"),
        (("source", "--vram", "4"), 2, "--vram"),
        (("source", "--gpu", "0"), 2, "experts are computed by the processor"),
    ],
    ids=str,
)
def test_bad_values_are_named_with_a_remedy(
    coli: CommandLine, source: Path, arguments: tuple[str, ...], code: int, words: str
) -> None:
    assert source.is_dir()
    done = coli.run("plan", *arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_a_model_split_over_directories_is_planned_and_examined(
    coli: CommandLine, container: Path
) -> None:
    other = coli.home / "other"
    other.mkdir()
    for file in container.glob("*.safetensors"):
        file.rename(other / file.name)
    split = replace(coli, variables={**coli.variables, "COLI_MODEL_DIRS": str(other)})
    for command in (("plan", str(container)), ("doctor", "--model", str(container))):
        assert coli.run(*command).returncode != 0
        done = split.run(*command)
        assert done.returncode == 0, done.stdout + done.stderr
