"""Everything of a model directory that is not weights: configuration, tokenizer, index."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import CheckpointError
from colibri_engine.loader.durable import write_json, write_whole
from colibri_engine.loader.hf_checkpoint import HfCheckpoint
from colibri_engine.loader.hf_tokenizer import TokenizerFiles
from colibri_engine.loader.json_file import is_there, read_whole
from colibri_engine.loader.safetensors import SafetensorsFile
from colibri_engine.loader.shards import INDEX

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from colibri_engine.loader.base import Checkpoint

_COPIED: Final = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "chat_template.jinja",
    "generation_config.json",
)
_EXPECTED: Final = ("tokenizer_config.json", "generation_config.json")
_MAX_BYTES: Final = 1 << 30
_QUANTIZATION: Final = "quantization_config"  # of the source's weights, which are gone


def write_side_files(checkpoint: Checkpoint, directory: Path) -> list[str]:
    """Write all files but weights; `config.json`, without which nothing opens, comes last.

    Returns:
        Names of files that models usually have and this source lacks.

    Raises:
        CheckpointError: a tokenizer that was rebuilt does not mean the same, or the source's
            tokenizer or chat template is another one now than when it was opened.
    """
    missing: list[str] = []
    if isinstance(checkpoint, HfCheckpoint):
        for name in _COPIED:
            source = checkpoint.path / name
            if is_there(source):
                write_whole(directory / name, read_whole(source, _MAX_BYTES))
            elif name in _EXPECTED:
                missing.append(name)
        _check_copies(checkpoint, directory)
    else:
        _write_tokenizer(checkpoint, directory)
        if checkpoint.generation_config:
            write_json(directory / "generation_config.json", dict(checkpoint.generation_config))
    config = {key: value for key, value in checkpoint.config.items() if key != _QUANTIZATION}
    write_json(directory / "config.json", config)
    return missing


def write_index(directory: Path, names: Iterable[str]) -> None:
    """Write which file holds which tensor, so that a missing one is noticed."""
    homes: dict[str, str] = {}
    total = 0
    for name in names:
        file = SafetensorsFile(directory / name)
        try:
            homes.update(dict.fromkeys(file.entries, name))
            total += sum(entry.nbytes for entry in file.entries.values())
        finally:
            file.close()
    write_json(directory / INDEX, {"metadata": {"total_size": total}, "weight_map": homes})


def _check_copies(checkpoint: HfCheckpoint, directory: Path) -> None:
    """Refuse copies that lack what the source had when it was opened, perhaps hours ago."""
    if not (checkpoint.path / _COPIED[0]).exists():
        raise _changed(checkpoint, "tokenizer")
    files = TokenizerFiles(directory)
    found, source = files.source(), checkpoint.tokenizer
    if found.added_tokens != source.added_tokens or found.vocab_size != source.vocab_size:
        raise _changed(checkpoint, "tokenizer")
    if files.chat_template() != checkpoint.chat_template:
        raise _changed(checkpoint, "chat template")


def _changed(checkpoint: HfCheckpoint, what: str) -> CheckpointError:
    return CheckpointError(
        f"the {what} of {checkpoint.path} vanished or changed while it was converted",
        path=checkpoint.path,
        hint="put it back and run the same command again: the finished files are kept",
    )


def _write_tokenizer(checkpoint: Checkpoint, directory: Path) -> None:
    """Write the tokenizer of a source that keeps it in another form, and compare the two."""
    source, special = checkpoint.tokenizer, checkpoint.special_tokens
    body: dict[str, Any] = json.loads(source.build().to_str())
    if source.strips_first_space:
        strip = {"type": "Strip", "content": " ", "start": 1, "stop": 0}
        body["decoder"] = {"type": "Sequence", "decoders": [*_steps(body["decoder"]), strip]}
    write_json(directory / "tokenizer.json", body)
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": special.bos_token,
        "eos_token": special.eos_token,
        "add_bos_token": bool(source.prefix_ids),
        "clean_up_tokenization_spaces": False,
    }
    if checkpoint.chat_template is not None:
        config["chat_template"] = checkpoint.chat_template
    write_json(directory / "tokenizer_config.json", config)
    files = TokenizerFiles(directory)
    found = files.source()
    ends = files.special_tokens(checkpoint.config, checkpoint.generation_config)
    same = (
        found.prefix_ids == source.prefix_ids
        and found.vocab_size == source.vocab_size
        and found.byte_level == source.byte_level
        and found.strips_first_space == source.strips_first_space
        and found.added_tokens == source.added_tokens
        and ends == special
    )
    if not same:
        raise CheckpointError(
            f"the tokenizer of {checkpoint.path} cannot be written as tokenizer.json without a "
            "change of meaning",
            path=checkpoint.path,
            hint="run the model from its own file; its tokenizer is of a kind not known here",
        )


def _steps(decoder: dict[str, Any]) -> list[Any]:
    steps: list[Any] = decoder["decoders"] if decoder.get("type") == "Sequence" else [decoder]
    return steps
