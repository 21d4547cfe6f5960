"""The files beside the weights: optional ones may be absent, but not damaged or something else."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from colibri_engine.errors import CheckpointError
from colibri_engine.loader import hf_checkpoint, hf_tokenizer
from colibri_engine.loader.checkpoint import open_checkpoint
from tests.fakes.tiny_checkpoint import write_hf, write_json

SIDE_FILES = (
    "config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json",
    "special_tokens_map.json", "chat_template.jinja",
)  # fmt: skip
JSON_FILES = tuple(name for name in SIDE_FILES if name.endswith(".json"))


def refusal(directory: Path) -> CheckpointError:
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(directory)
    return caught.value


@pytest.mark.parametrize("name", SIDE_FILES)
def test_a_directory_in_place_of_a_file_is_named(tmp_path: Path, name: str) -> None:
    write_hf(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).mkdir()
    error = refusal(tmp_path)
    assert f"cannot read {tmp_path / name}: Is a directory" in str(error)
    assert f"in place of the directory {name}" in str(error.hint)


@pytest.mark.parametrize("name", SIDE_FILES)
def test_a_file_that_may_not_be_read_is_named(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever runs the tests may read everything: the refusal is the system's, made up here."""
    write_hf(tmp_path)
    (tmp_path / name).write_text("{}")
    plain = os.open

    def refuse(path: str, flags: int, mode: int = 0o777) -> int:
        if str(path).endswith(f"/{name}"):
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path, flags, mode)

    monkeypatch.setattr(os, "open", refuse)
    error = refusal(tmp_path)
    assert f"cannot read {tmp_path / name}: Permission denied" in str(error)
    assert f"allow reading {name}" in str(error.hint)


@pytest.mark.parametrize("name", SIDE_FILES)
def test_a_file_that_is_far_too_large_is_named_with_both_sizes(
    tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has holes only, and is not read."""
    write_hf(tmp_path)
    limits = {
        "config.json": hf_checkpoint._MAX_CONFIG_BYTES,
        "generation_config.json": hf_checkpoint._MAX_CONFIG_BYTES,
        "tokenizer.json": hf_tokenizer._MAX_TOKENIZER_BYTES,
        "chat_template.jinja": hf_tokenizer._MAX_TEMPLATE_BYTES,
    }
    limit = limits.get(name, hf_tokenizer._MAX_CONFIG_BYTES)
    with (tmp_path / name).open("wb") as file:
        file.truncate(limit + 1)
    assert f"{name} has {limit + 1} bytes, more than the {limit} allowed" in str(refusal(tmp_path))


@pytest.mark.parametrize("name", JSON_FILES)
@pytest.mark.parametrize("content", ["", "[]", "{", "null", "\0\0", '{"a": 1, "a": 2}'])
def test_a_file_that_is_no_json_object_is_named(tmp_path: Path, name: str, content: str) -> None:
    write_hf(tmp_path)
    (tmp_path / name).write_text(content)
    error = refusal(tmp_path)
    assert f"{tmp_path / name} " in str(error)
    assert error.hint == "the file is damaged; pull or copy the model again"


@pytest.mark.parametrize("name", ["tokenizer_config.json", "special_tokens_map.json"])
@pytest.mark.parametrize("value", [5, ["<|im_end|>"], {"content": 5}, True])
def test_a_control_token_that_is_no_text_is_named(tmp_path: Path, name: str, value: object) -> None:
    write_hf(tmp_path)
    (tmp_path / "tokenizer_config.json").write_text("{}")
    write_json(tmp_path / name, {"eos_token": value})
    assert f"{name}: its eos_token is " in str(refusal(tmp_path))


@pytest.mark.parametrize("value", [5, True, {}, ["text"], [{"name": "default"}]])
def test_a_template_that_is_none_is_named(tmp_path: Path, value: object) -> None:
    write_hf(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": value})
    assert "tokenizer_config.json: its chat_template is " in str(refusal(tmp_path))


def test_control_tokens_that_only_their_map_names_count(tmp_path: Path) -> None:
    """Older tokenizers keep them there alone."""
    write_hf(tmp_path)
    write_json(tmp_path / "tokenizer_config.json", {"bos_token": "<|im_start|>"})
    tokens = {"bos_token": "<|im_end|>", "eos_token": {"content": "</think>", "lstrip": False}}
    write_json(tmp_path / "special_tokens_map.json", tokens)
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.special_tokens.eos_token == "</think>"
    assert 6 in checkpoint.special_tokens.eos_token_ids
    assert checkpoint.special_tokens.bos_token == "<|im_start|>"  # the configuration goes first
    checkpoint.close()


@pytest.mark.parametrize(
    "name",
    [*SIDE_FILES, "model.safetensors", "model.safetensors.index.json"],
)
@pytest.mark.parametrize("kind", ["lost", "circle"])
def test_a_link_to_a_file_that_is_gone_is_named(tmp_path: Path, name: str, kind: str) -> None:
    """A store of links whose files were cleared away must not turn into another model."""
    write_hf(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    (tmp_path / name).symlink_to(name if kind == "circle" else "gone")
    with pytest.raises(CheckpointError, match=f"cannot read .*{re.escape(name)}: ") as caught:
        open_checkpoint(tmp_path)
    assert kind == "circle" or "is a link to a file that is gone" in str(caught.value.hint)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="hardware: a system without named pipes")
@pytest.mark.parametrize(
    "name", ["config.json", "tokenizer.json", "model.safetensors", "more.safetensors"]
)
def test_a_named_pipe_is_refused_at_once(tmp_path: Path, name: str) -> None:
    """To open one for reading waits for whoever writes into it, which may be nobody."""
    write_hf(tmp_path)
    (tmp_path / name).unlink(missing_ok=True)
    os.mkfifo(tmp_path / name)
    with pytest.raises(CheckpointError, match=f"{re.escape(name)} is a pipe or a device"):
        open_checkpoint(tmp_path)


def test_a_template_in_another_encoding_is_refused_with_a_remedy(tmp_path: Path) -> None:
    write_hf(tmp_path)
    (tmp_path / "chat_template.jinja").write_bytes(b"\xff{{ messages }}")
    with pytest.raises(CheckpointError, match=r"chat_template\.jinja is not UTF-8") as caught:
        open_checkpoint(tmp_path)
    assert caught.value.hint == "the file is damaged; pull or copy the model again"


def test_the_optional_files_are_optional(tmp_path: Path) -> None:
    write_hf(tmp_path)
    for name in ("generation_config.json", "tokenizer_config.json"):
        (tmp_path / name).unlink()
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.generation_config == {}
    assert checkpoint.special_tokens.eos_token_ids == (0, 2)
    assert checkpoint.special_tokens.eos_token is None
    checkpoint.close()


def test_the_template_file_wins_and_the_default_is_taken_from_a_list(tmp_path: Path) -> None:
    write_hf(tmp_path)
    named = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    write_json(tmp_path / "tokenizer_config.json", {"chat_template": named})
    first = open_checkpoint(tmp_path)
    assert first.chat_template == "b"
    (tmp_path / "chat_template.jinja").write_text("c é", encoding="utf-8")
    second = open_checkpoint(tmp_path)
    assert second.chat_template == "c é"
    first.close()
    second.close()
