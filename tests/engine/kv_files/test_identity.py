"""Saved rows belong to one model, computed in one way; anything else begins anew and says why."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from colibri_engine.kv_files import identity
from colibri_engine.kv_files.identity import weights_digest
from colibri_engine.kv_files.layout import Unusable
from tests.engine.kv_files.file_rig import (
    HALVES,
    IDENTITY,
    PLAIN,
    Bounds,
    file_of,
    ids_of,
    read_back,
)
from tests.engine.kv_files.resume_rig import ask, fresh, saving, warnings_of, write_model
from tests.engine.kv_files.turns import Turn, save_all
from tests.engine.model_rig import prompt_of
from tests.fakes.tiny_checkpoint import write_hf, write_json

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return write_model(tmp_path / "model", "glm4_moe")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"program": "0.0.9"}, "version 1.2.3 of the program"),
        ({"config": "d" * 64}, "another configuration"),
        ({"weights": "d" * 64}, "other weights"),
        ({"numerics": "float"}, "numerics default"),
        ({"experts_per_token": 2}, "experts per token"),
        ({"layers": "d" * 64}, "other sizes"),
        ({"kv_dtype": "bf16"}, "its rows were kept as f32"),
    ],
)
def test_each_part_counts(change: dict[str, Any], reason: str, tmp_path: Path) -> None:
    path = tmp_path / ".coli_kv"
    save_all(file_of(path, PLAIN), [Turn(ids_of(9), ())], PLAIN)
    with pytest.raises(Unusable, match=reason):
        read_back(path, PLAIN, replace(IDENTITY, **change))


def test_a_file_that_does_not_say_how_rows_were_kept_has_floats() -> None:
    told = IDENTITY.as_dict()
    del told["kv_dtype"]
    IDENTITY.check(told)
    with pytest.raises(Unusable, match="kept as f32"):
        replace(IDENTITY, kv_dtype="bf16").check(told)


def test_the_name_of_a_model_does_not_count(tmp_path: Path) -> None:
    path = tmp_path / ".coli_kv"
    save_all(file_of(path, PLAIN), [Turn(ids_of(9), ())], PLAIN)
    renamed = replace(IDENTITY, model="renamed " * 30)
    assert read_back(path, PLAIN, renamed).size == 9
    file = file_of(path, PLAIN, renamed)
    file.open()
    file.close()


def test_a_smaller_context_does_not_go_on_and_a_larger_one_does(tmp_path: Path) -> None:
    path = tmp_path / ".coli_kv"
    save_all(file_of(path, PLAIN), [Turn(ids_of(9), ())], PLAIN)
    with pytest.raises(Unusable, match="context of 2000 tokens, now there are 1999"):
        read_back(path, PLAIN, bounds=Bounds(context_length=1999))
    assert read_back(path, PLAIN, bounds=Bounds(context_length=2001)).size == 9


def test_another_version_of_the_format_is_named(tmp_path: Path) -> None:
    path = tmp_path / ".coli_kv"
    save_all(file_of(path, PLAIN), [Turn(ids_of(9), ())], PLAIN)
    data = bytearray(path.read_bytes())
    data[8] = 3
    path.write_bytes(data)
    with pytest.raises(Unusable, match="version 3 of the format, this program reads 1 and 2"):
        read_back(path, PLAIN)


def test_rows_of_bf16_that_were_written_as_floats_are_not_used(tmp_path: Path) -> None:
    path = tmp_path / ".coli_kv"
    halves = replace(IDENTITY, kv_dtype="bf16")
    save_all(file_of(path, PLAIN, halves), [Turn(ids_of(9), ())], PLAIN)
    with pytest.raises(Unusable, match="version 1 of the format, such rows are of 2"):
        read_back(path, HALVES, halves)


# ---- in an engine -------------------------------------------------------------------------------


def _other_weights(model: Path) -> dict[str, Any]:
    stat = (model / "model.safetensors").stat()
    write_hf(model, "glm4_moe", max_position_embeddings=2048, seed=99)
    after = (model / "model.safetensors").stat()
    assert after.st_size == stat.st_size  # only the samples tell them apart
    os.utime(model / "model.safetensors", ns=(stat.st_atime_ns, stat.st_mtime_ns))
    return {}


def _other_format(model: Path) -> dict[str, Any]:
    write_hf(model, "glm4_moe", max_position_embeddings=2048, dtype="F32")
    return {}


def _other_config(model: Path) -> dict[str, Any]:
    import json

    body = json.loads((model / "config.json").read_text())
    write_json(model / "config.json", body | {"rms_norm_eps": 1e-4})
    return {}


@pytest.mark.parametrize(
    ("alter", "reason"),
    [
        (_other_weights, "other weights"),
        (_other_format, "other weights"),
        (_other_config, "another configuration"),
        (lambda _: {"numerics": "fast"}, "numerics default"),
        (lambda _: {"experts_per_token": 1}, "experts per token"),
        (lambda _: {"context_length": 500}, "context of 600 tokens"),
    ],
    ids=["weights", "format", "config", "numerics", "experts", "context"],
)
def test_another_model_begins_anew(
    alter: Callable[[Path], dict[str, Any]],
    reason: str,
    model: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    prompt = prompt_of(100)
    with saving(model) as engine:
        ask(engine, prompt)
    changes = alter(model)
    with saving(model, **changes) as engine:
        told = [text for text in warnings_of(caplog) if "is not used" in text]
        turn = ask(engine, [*prompt, 7])
    assert len(told) == 1
    assert reason in told[0]
    assert str(model / ".coli_kv") in told[0]
    assert turn.num_reused == 0
    assert turn.same_as(fresh(model, [*prompt, 7], **changes))


def test_another_version_of_the_program_begins_anew(
    model: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with saving(model) as engine:
        ask(engine, prompt_of(100))
    monkeypatch.setattr(identity, "program_version", lambda: "999.0")
    with saving(model) as engine:
        (told,) = warnings_of(caplog)
        assert "of the program" in told
        assert ask(engine, prompt_of(100)).num_reused == 0


def test_a_model_that_was_moved_goes_on(model: Path, tmp_path: Path) -> None:
    with saving(model) as engine:
        ask(engine, prompt_of(100))
    moved = tmp_path / "moved"
    model.rename(moved)
    with saving(moved) as engine:
        assert ask(engine, [*prompt_of(100), 7]).num_reused == 100


def test_the_digest_of_weights_sees_name_size_time_and_content(tmp_path: Path) -> None:
    def write(name: str, data: bytes, time_ns: int = 5_000_000_000) -> str:
        for old in tmp_path.iterdir():
            old.unlink()
        (tmp_path / name).write_bytes(data)
        os.utime(tmp_path / name, ns=(0, time_ns))
        return weights_digest([tmp_path / name])

    data = bytes(range(256)) * (12 << 10)  # 3 MiB, of which samples are a third
    digests = {write("a.bin", data), write("b.bin", data), write("a.bin", data[:-1])}
    digests |= {write("a.bin", data, 6_000_000_000), write("a.bin", data[:-1] + b"!")}
    digests |= {write("a.bin", b"!" + data[1:])}
    assert len(digests) == 6
    assert write("a.bin", data) in digests
    assert weights_digest([]) not in digests
