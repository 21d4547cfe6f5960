"""What a directory already holds of a conversion, so that it can go on where it was stopped.

`.coli-convert.json` names the parameters, the source (what it holds, and a digest of samples of its
values or its commit) and every finished file with its size and digest. It is replaced as a whole
after each file, so a kill leaves the old or the new one; a file that is not in it does not count,
whatever is on disk.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

from colibri_engine.errors import CheckpointError, ConversionError
from colibri_engine.loader.durable import write_json
from colibri_engine.loader.file_samples import samples_digest
from colibri_engine.loader.json_file import read_json
from colibri_engine.loader.shard_writer import PARTIAL_SUFFIX, WrittenShard

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from colibri_engine.conversion.options import ConvertOptions
    from colibri_engine.conversion.plan import ConversionPlan
    from colibri_engine.loader.base import Checkpoint

MANIFEST: Final = ".coli-convert.json"

_SCHEMA_VERSION: Final = 1
_MAX_BYTES: Final = 16 << 20

# What would be replaced, or would make the directory mean two models.
_STRANGERS: Final = (
    "*.safetensors", "*.gguf", "config.json", "tokenizer*.json", "generation_config.json",
    "*.index.json", "chat_template.jinja", "special_tokens_map.json",
)  # fmt: skip


# What reading a manifest of any content raises; a number of JSON may be beyond all integers.
_NO_MANIFEST: Final = (
    CheckpointError, KeyError, TypeError, ValueError, AttributeError, OverflowError,
)  # fmt: skip


class Manifest:
    """The state of one output directory.

    Args:
        directory: The directory, which exists and whose lock is held.
        parameters: What decides about the bytes of the result.
        source: Identity of the source.
        contents: Digest of what is looked at of its values, or their commit.

    Raises:
        ConversionError: the directory holds another conversion, or files of something else.
    """

    def __init__(
        self, directory: Path, parameters: dict[str, object], source: str, contents: str
    ) -> None:
        self._directory = directory
        self._parameters = parameters
        self._source = source
        self._contents = contents
        self._path = directory / MANIFEST
        self.is_complete = False
        self._files: dict[str, WrittenShard] = {}
        if self._path.exists():
            self._read()
        else:
            self._refuse_strangers()
            self._write()  # before any file has its name, or it would be a stranger after a kill

    def finished(self, name: str) -> WrittenShard | None:
        """Return what is known of a finished file that is still there, else None."""
        known = self._files.get(name)
        if known is None:
            return None
        try:
            size = (self._directory / name).stat().st_size
        except FileNotFoundError:
            return None
        return known if size == known.nbytes else None

    def record(self, name: str, written: WrittenShard) -> None:
        """Note a finished file, on disk."""
        self._files[name] = written
        self._write()

    def complete(self, planned: Iterable[str]) -> None:
        """Note that all files are there."""
        self._files = {name: self._files[name] for name in planned}
        self.is_complete = True
        self._write()

    def remove_partial_files(self) -> None:
        """Remove what a killed conversion left half-written."""
        for path in self._directory.glob(f".*{PARTIAL_SUFFIX}"):
            path.unlink(missing_ok=True)

    def _write(self) -> None:
        files = {
            name: {"bytes": written.nbytes, "sha256": written.sha256}
            for name, written in self._files.items()
        }
        body = {
            "schema_version": _SCHEMA_VERSION,
            "parameters": self._parameters,
            "source": self._source,
            "contents": self._contents,
            "complete": self.is_complete,
            "files": files,
        }
        write_json(self._path, body)

    def _read(self) -> None:
        try:
            body: dict[str, Any] = read_json(self._path, _MAX_BYTES)
            if body["schema_version"] != _SCHEMA_VERSION:
                raise self._other(f"was written by another version ({body['schema_version']})")
            parameters, source = dict(body["parameters"]), str(body["source"])
            contents = str(body.get("contents", self._contents))  # earlier versions did not look
            files = {
                str(name): WrittenShard(int(entry["bytes"]), str(entry["sha256"]))
                for name, entry in body["files"].items()
            }
            is_complete = body["complete"] is True
        except _NO_MANIFEST as error:
            raise ConversionError(
                f"{self._path} is damaged",
                hint=f"remove {self._directory} and convert again",
            ) from error
        self._compare(parameters, source)
        if contents != self._contents:
            raise self._other("was begun from a source of the same shape with other values")
        self._files, self.is_complete = files, is_complete

    def _compare(self, parameters: dict[str, object], source: str) -> None:
        for key in sorted(self._parameters.keys() | parameters.keys()):
            then, now = parameters.get(key), self._parameters.get(key)
            if then != now:
                raise self._other(f"was begun with {key} = {_show(then)}, now it is {_show(now)}")
        if source != self._source:
            raise self._other("was begun from another source")

    def _refuse_strangers(self) -> None:
        strangers = {path.name for glob in _STRANGERS for path in self._directory.glob(glob)}
        if strangers:
            raise ConversionError(
                f"{self._directory} already holds {min(strangers)}, which is not of this "
                "conversion",
                hint="give an empty or a new directory",
            )

    def _other(self, problem: str) -> ConversionError:
        return ConversionError(
            f"the conversion in {self._directory} {problem}",
            hint="use the same options as before, or give another directory",
        )


def source_identity(checkpoint: Checkpoint, plan: ConversionPlan) -> str:
    """Return what tells one source from another: tensors, formats, configuration and size."""
    digest = hashlib.sha256()
    facts = [
        (tensor.source.name, checkpoint.shape(tensor.source.name)) for tensor in plan.tensors()
    ]
    formats = [checkpoint.format_name(name) for name, _ in facts]
    body = [checkpoint.nbytes, dict(checkpoint.config), sorted(zip(facts, formats, strict=True))]
    digest.update(json.dumps(body, sort_keys=True, default=str).encode())
    return digest.hexdigest()


def source_contents(files: Sequence[Path]) -> str:
    """Return a digest of samples of a source's weight files, wherever they lie.

    Raises:
        OSError: one cannot be read.
    """
    return samples_digest(files, lambda sample: str(sample.size))


def plan_parameters(options: ConvertOptions) -> dict[str, object]:
    """Return an options object's parameters as JSON gives them back."""
    parameters: dict[str, object] = json.loads(json.dumps(options.parameters()))
    return parameters


def _show(value: object) -> str:
    return "not set" if value is None else repr(value)
