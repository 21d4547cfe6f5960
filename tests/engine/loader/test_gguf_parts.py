"""A split GGUF model is one model; what is missing or mixed up among its parts is named."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.checkpoint import open_checkpoint
from tests.fakes.tiny_gguf import part_path, write_gguf_model

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fakes.tiny_checkpoint import TinyCheckpoint


@pytest.fixture
def tiny(tmp_path: Path) -> TinyCheckpoint:
    return write_gguf_model(tmp_path / "m.gguf", "qwen3_moe", num_parts=3)


def parts_of(tiny: TinyCheckpoint) -> list[Path]:
    return sorted(tiny.path.parent.glob("*.gguf"))


def refusal(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert caught.value.hint
    return caught.value.message


def test_any_part_and_the_directory_open_the_whole_model(tiny: TinyCheckpoint) -> None:
    parts = parts_of(tiny)
    assert len(parts) == 3
    for path in (*parts, tiny.path.parent):
        with closing(open_checkpoint(path)) as checkpoint:
            assert set(checkpoint.names()) == set(tiny.weights)
            assert checkpoint.nbytes == sum(part.stat().st_size for part in parts)
            assert checkpoint.config["num_experts"] == 8
            for name, values in tiny.weights.items():
                np.testing.assert_array_equal(checkpoint.array(name), values)


def test_a_missing_part_is_named(tiny: TinyCheckpoint) -> None:
    parts_of(tiny)[1].unlink()
    message = refusal(tiny.path)
    assert parts_of(tiny)[0].name.replace("00001", "00002") in message
    assert "incomplete" in message


def test_a_cut_part_is_named_with_both_sizes(tiny: TinyCheckpoint) -> None:
    last = parts_of(tiny)[-1]
    content = last.read_bytes()
    last.write_bytes(content[:-100])
    message = refusal(tiny.path)
    assert last.name in message
    assert str(len(content) - 100) in message


def test_a_name_that_does_not_say_its_place_is_refused(tiny: TinyCheckpoint) -> None:
    renamed = tiny.path.rename(tiny.path.with_name("model.gguf"))
    message = refusal(renamed)
    assert "one of 3 parts" in message
    assert renamed.name in message


def test_parts_in_the_wrong_place_are_named(tiny: TinyCheckpoint) -> None:
    first, second, third = parts_of(tiny)
    second.rename(second.with_suffix(".tmp"))
    third.rename(second)
    second.with_suffix(".tmp").rename(third)
    message = refusal(first)
    assert "part 3 of 3" in message
    assert "2 of 3" in message


def other_part(tmp_path: Path, number: int, **writing: Any) -> Path:  # noqa: ANN401 - options of the writer
    """Return part `number` (from 0) of another model."""
    directory = tmp_path / "other"
    directory.mkdir()
    tiny = write_gguf_model(directory / "m.gguf", "qwen3_moe", **writing)
    return part_path(directory / "m.gguf", number, len(parts_of(tiny)))


def test_a_part_of_another_model_is_noticed(tmp_path: Path, tiny: TinyCheckpoint) -> None:
    other_part(tmp_path, 0, num_parts=2).replace(tiny.path)
    message = refusal(parts_of(tiny)[1])
    assert "part 1 of 2" in message
    assert "1 of 3" in message


def test_a_tensor_in_two_parts_is_refused_with_both_names(
    tmp_path: Path, tiny: TinyCheckpoint
) -> None:
    shifted = other_part(tmp_path, 1, num_parts=3, leave_out=("token_embd.weight",))
    shifted.replace(parts_of(tiny)[1])
    message = refusal(tiny.path)
    names = [part.name for part in parts_of(tiny)]
    assert f"stands in both {names[1]} and {names[2]}" in message


def test_a_total_that_does_not_fit_is_refused(tmp_path: Path) -> None:
    tiny = write_gguf_model(tmp_path / "m.gguf", num_parts=2, metadata={"split.tensors.count": 99})
    assert "counts 99 tensors in 2 parts; they hold 20" in refusal(tiny.path)


def test_two_models_in_a_directory_want_a_choice(tmp_path: Path, tiny: TinyCheckpoint) -> None:
    write_gguf_model(tmp_path / "n.gguf", num_parts=2)
    assert "5 GGUF files" in refusal(tiny.path.parent)
