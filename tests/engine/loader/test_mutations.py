"""Thousands of damaged files: each loads, or is refused by a named error of ours, in one line.

Nothing else may happen: no other exception, no warning, no memory beyond what the file justifies.
"""

from __future__ import annotations

import contextlib
import resource
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest

from colibri_engine.errors import ColibriError
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.loader.gguf import GgufFile
from colibri_engine.loader.hf_checkpoint import HfCheckpoint
from colibri_engine.models.registry import load_model
from colibri_engine.tokenizer import Tokenizer
from tests.engine.conversion.rig import convert
from tests.engine.loader.mutations import hostile_json, mutations
from tests.engine.loader.test_quantized_checkpoints import write as write_quantized
from tests.engine.models.conftest import forward_in_chunks
from tests.fakes.container_models import CONTAINER_FORMATS, write_container
from tests.fakes.stream_models import restream
from tests.fakes.tiny_checkpoint import FAMILIES, write_hf
from tests.fakes.tiny_gguf import write_gguf_model
from tests.fakes.tiny_variants import CONFIGS as VARIANTS
from tests.fakes.tiny_variants import write_variant

SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "intermediate_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 16,
}
TINY_MIXTURE: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 2,
    "moe_intermediate_size": 32,
    "intermediate_size": 32,
    "n_routed_experts": 2,
    "num_experts_per_tok": 1,
    "head_dim": 16,
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
}
SUPERBLOCKS: dict[str, Any] = {
    **SMALL,
    "hidden_size": 256,
    "intermediate_size": 256,
    "head_dim": 128,
}
SPARE_BYTES = 256 << 20

Maker: TypeAlias = Callable[[Path], tuple[Path, Path, int]]
"""Makes a model in a directory: what to open, the file to damage, the bytes that matter most."""


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Leave the process 256 MiB of address space beyond what it has: more is a MemoryError."""
    statm = Path("/proc/self/statm")
    if not statm.exists():
        yield
        return
    used = int(statm.read_text().split()[0]) * resource.getpagesize()
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + SPARE_BYTES, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def load_everything(path: Path) -> None:
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        for name in checkpoint.names():
            checkpoint.array(name)
        tokenizer = Tokenizer(checkpoint.tokenizer)
        tokenizer.decode(tokenizer.encode_text("hello 2020 é<|user|>"))


def run(path: Path) -> None:
    """Read the tokenizer, pack every matrix for the kernels, and compute a few rows."""
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        model = load_model(checkpoint)
        ids = Tokenizer(checkpoint.tokenizer).encode_text("hello 2020 é<|user|>")
    ids = [number for number in ids if number < model.config.vocab_size]
    if ids:
        forward_in_chunks(model, np.array(ids, np.int32), 4)


def turn_back(path: Path) -> None:
    """Run a model, and read what is kept of its matrices for the way to another layout."""
    run(path)
    with contextlib.closing(open_checkpoint(path)) as checkpoint:
        assert isinstance(checkpoint, HfCheckpoint)
        for name in checkpoint.names():
            if len(shape := checkpoint.shape(name)) == 2 and checkpoint.has_raw(name):
                for first in range(0, shape[0], 128):
                    checkpoint.raw_rows(name, first, min(128, shape[0] - first))


def damage(
    model: Path,
    file: Path,
    count: int,
    header: int | None,
    *,
    first: int = 0,
    start: int = 0,
    load: Callable[[Path], None] = load_everything,
) -> None:
    """Load a model with `file` damaged in `count` ways; `header` bytes from `start` matter most."""
    content = file.read_bytes()
    limit = min(header or len(content), len(content) - start)
    changes = mutations(content, count, header=limit, first=first, start=start)
    check(model, file, changes, load, first=first)


def check(
    model: Path,
    file: Path,
    changes: Iterable[bytes],
    load: Callable[[Path], None],
    *,
    first: int = 0,
) -> None:
    """Load a model with one file as it is, then with each of `changes`; those begin at `first`."""
    load(model)
    loaded = count = 0
    for number, changed in enumerate(changes, first):
        count += 1
        file.write_bytes(changed)
        try:
            load(model)
            loaded += 1
        except ColibriError as error:
            message = str(error)
            assert message, number
            assert message.isprintable(), number
            assert len(message) < 800, number
    assert 0 < loaded < count  # the damage is neither harmless nor total


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("family", ["llama", "glm4_moe"])
def test_damaged_gguf_files(tmp_path: Path, family: str) -> None:
    dense: dict[str, Any] = {"first_k_dense_replace": 0} if family == "glm4_moe" else {}
    path = write_gguf_model(tmp_path / "m.gguf", family, type_name="Q4_1", **SMALL, **dense).path
    damage(path, path, 800, 10_000)


@pytest.mark.usefixtures("little_memory")
def test_damaged_gguf_files_of_superblocks(tmp_path: Path) -> None:
    path = write_gguf_model(tmp_path / "m.gguf", type_name="Q4_K", **SUPERBLOCKS).path
    damage(path, path, 300, 10_000)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("dtype", ["F8_E4M3", "BF16"])
def test_damaged_safetensors_files(tmp_path: Path, dtype: str) -> None:
    write_hf(tmp_path, dtype=dtype, fp8_block=(16, 16), **SMALL)
    damage(tmp_path, tmp_path / "model.safetensors", 600, 1500)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("family", ["gpt_oss", "inkling"])
@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_damaged_files_with_stacks_of_experts(tmp_path: Path, family: str, file: str) -> None:
    write_variant(tmp_path, family, mxfp4=family == "gpt_oss")
    damage(tmp_path, tmp_path / file, 250, 12_000 if file == "model.safetensors" else None)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("format_name", CONTAINER_FORMATS)
def test_damaged_containers(tmp_path: Path, format_name: str) -> None:
    write_container(tmp_path, format_name=format_name, **TINY_MIXTURE)
    damage(tmp_path, tmp_path / "out-00000.safetensors", 250, None)


@pytest.mark.usefixtures("little_memory")
def test_a_damaged_configuration_of_a_container(tmp_path: Path) -> None:
    write_container(tmp_path, **TINY_MIXTURE)
    damage(tmp_path, tmp_path / "config.json", 600, None)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("format_name", ["int4-grouped", "e8-iq3-lattice", "fp8-e4m3-b128"])
def test_damaged_files_of_the_streaming_layout(tmp_path: Path, format_name: str) -> None:
    path, file, header = a_converted_one(format_name)(tmp_path)
    damage(path, file, 400, header, load=turn_back)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("way", ["int4-groups", "fp8-blocks", "nvfp4"])
@pytest.mark.parametrize("file", ["model.safetensors", "config.json"])
def test_damaged_files_of_other_quantizers(tmp_path: Path, way: str, file: str) -> None:
    write_quantized(tmp_path, way)
    damage(tmp_path, tmp_path / file, 250, 6000 if file == "model.safetensors" else None)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "file", ["config.json", "tokenizer.json", "tokenizer_config.json", "generation_config.json"]
)
def test_damaged_json_files(tmp_path: Path, file: str) -> None:
    write_hf(tmp_path, **SMALL)
    damage(tmp_path, tmp_path / file, 300, None)


@pytest.mark.usefixtures("little_memory")
def test_a_damaged_index(tmp_path: Path) -> None:
    write_hf(tmp_path, num_shards=3, **SMALL)
    damage(tmp_path, tmp_path / "model.safetensors.index.json", 300, None)


def a_family(directory: Path, family: str) -> Path:
    """Write a model of one architecture, as small as it gets."""
    if family in VARIANTS:
        write_variant(directory, family, mxfp4=family == "gpt_oss")
    else:
        write_hf(directory, family)
    return directory


EVERY_FAMILY = sorted({*FAMILIES, *VARIANTS})


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_configurations_with_values_that_cannot_be(tmp_path: Path, family: str) -> None:
    file = a_family(tmp_path, family) / "config.json"
    check(tmp_path, file, hostile_json(file.read_bytes(), 60), run)


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize(
    "name", ["tokenizer.json", "tokenizer_config.json", "generation_config.json"]
)
def test_tokenizers_with_values_that_cannot_be(tmp_path: Path, name: str) -> None:
    write_hf(tmp_path, **SMALL)
    file = tmp_path / name
    check(tmp_path, file, hostile_json(file.read_bytes(), 150), load_everything)


@pytest.mark.usefixtures("little_memory")
def test_damaged_tokenizers_of_gguf_files(tmp_path: Path) -> None:
    path = write_gguf_model(tmp_path / "m.gguf", type_name="Q4_1", **SMALL).path
    start = path.read_bytes().index(b"tokenizer.ggml")
    damage(path, path, 300, 5000, start=start)


# ---- scripts/test fuzz runs these with everything native under AddressSanitizer ------------------

CHUNK = 1000
CHUNKS = 4
SHORT_BLOCKS = ("MXFP4", "IQ4_NL", "Q4_1", "Q5_1", "Q8_0")
LONG_BLOCKS = ("IQ4_XS", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K")


def a_gguf_file(directory: Path) -> tuple[Path, Path, int]:
    path = write_gguf_model(directory / "m.gguf", "glm4_moe", type_name="Q5_0", **SMALL).path
    return path, path, 12_000


def a_gguf_file_of_levels(type_name: str, sizes: dict[str, Any]) -> Maker:
    def make(directory: Path) -> tuple[Path, Path, int]:
        path = write_gguf_model(directory / "m.gguf", type_name=type_name, **sizes).path
        return path, path, 12_000

    return make


def a_published_one(name: str, header: int, dtype: str = "F32") -> Maker:
    def make(directory: Path) -> tuple[Path, Path, int]:
        write_hf(directory, dtype=dtype, fp8_block=(16, 16), **SMALL)
        return directory, directory / name, header

    return make


def a_container(format_name: str) -> Maker:
    def make(directory: Path) -> tuple[Path, Path, int]:
        write_container(directory, format_name=format_name, **TINY_MIXTURE)
        return directory, directory / "out-00000.safetensors", 6000

    return make


def a_stream(format_name: str) -> Maker:
    def make(directory: Path) -> tuple[Path, Path, int]:
        source = write_container(directory / "m", format_name=format_name, **TINY_MIXTURE).path
        path = restream(source, directory / "stream")
        return path, path / "out-00000.safetensors", 8000

    return make


def a_converted_one(format_name: str) -> Maker:
    def make(directory: Path) -> tuple[Path, Path, int]:
        source = write_container(directory / "m", format_name=format_name, **TINY_MIXTURE).path
        convert(source, directory / "stream")
        path = directory / "stream"
        return path, next(path.glob("*.safetensors")), 8000

    return make


def one_of_another_quantizer(way: str) -> Maker:
    def make(directory: Path) -> tuple[Path, Path, int]:
        write_quantized(directory, way)
        return directory, directory / "model.safetensors", 6000

    return make


def a_stack_of_experts(family: str) -> Maker:
    def make(directory: Path) -> tuple[Path, Path, int]:
        write_variant(directory, family, mxfp4=family == "gpt_oss")
        return directory, directory / "model.safetensors", 8000

    return make


def a_latent_container(directory: Path) -> tuple[Path, Path, int]:
    write_container(directory, "glm_moe_dsa")
    return directory, directory / "out-00000.safetensors", 12_000


MAKERS: dict[str, Maker] = {
    "gguf": a_gguf_file,
    "safetensors": a_published_one("model.safetensors", 1500),
    "fp8": a_published_one("model.safetensors", 3000, "F8_E4M3"),
    "config": a_published_one("config.json", 1500),
    "tokenizer": a_published_one("tokenizer.json", 1500),
    "int4 container": a_container("int4-grouped"),
    "e8 container": a_container("e8-iq3-lattice"),
    "mxfp4 container": a_container("mxfp4"),
    "stream": a_stream("int4-grouped"),
    "gguf of MXFP4": a_gguf_file_of_levels("MXFP4", SMALL),
    "gguf of IQ4_NL": a_gguf_file_of_levels("IQ4_NL", SMALL),
    "gguf of IQ4_XS": a_gguf_file_of_levels("IQ4_XS", SUPERBLOCKS),
    "nvfp4": one_of_another_quantizer("nvfp4"),
    "stream of levels": a_stream("mxfp4"),
    "rotated stream": a_converted_one("e8-iq3-lattice"),
    "stream of fp8": a_converted_one("fp8-e4m3-b128"),
    "latent container": a_latent_container,
    "packed words": one_of_another_quantizer("int4-groups"),
    "stacks of blocks": a_stack_of_experts("gpt_oss"),
    "interleaved stacks": a_stack_of_experts("inkling"),
}

# Whose numbers, behind the header, mean more than values: scales, exponents, indices of tables.
PAYLOADS: dict[str, Maker] = {
    **{f"gguf of {name}": a_gguf_file_of_levels(name, SMALL) for name in SHORT_BLOCKS},
    **{f"gguf of {name}": a_gguf_file_of_levels(name, SUPERBLOCKS) for name in LONG_BLOCKS},
    **{f"{name} container": a_container(name) for name in CONTAINER_FORMATS},
    "fp8": MAKERS["fp8"],
    "nvfp4": MAKERS["nvfp4"],
    "stream of levels": MAKERS["stream of levels"],
    "rotated stream": MAKERS["rotated stream"],
    "stream of fp8": MAKERS["stream of fp8"],
    "stacks of blocks": MAKERS["stacks of blocks"],
}


def payload_start(file: Path) -> int:
    """Return where the numbers of a weight file begin."""
    if file.suffix == ".gguf":
        with contextlib.closing(GgufFile(file)) as opened:
            return min(tensor.offset for tensor in opened.tensors.values())
    return 8 + int.from_bytes(file.read_bytes()[:8], "little")


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
@pytest.mark.parametrize("kind", MAKERS)
def test_very_many_damaged_files(tmp_path: Path, kind: str, chunk: int) -> None:
    """Those that load are run, too: the kernels meet whatever a file can hold."""
    model, file, header = MAKERS[kind](tmp_path)
    load = turn_back if file.suffix == ".safetensors" else run
    damage(model, file, CHUNK, header, first=chunk * CHUNK, load=load)


@pytest.mark.slow
@pytest.mark.parametrize("kind", PAYLOADS)
def test_very_many_damaged_payloads(tmp_path: Path, kind: str) -> None:
    model, file, _ = PAYLOADS[kind](tmp_path)
    load = turn_back if file.suffix == ".safetensors" else run
    damage(model, file, CHUNK, None, start=payload_start(file), load=load)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_very_many_damaged_tokenizers_of_gguf_files(tmp_path: Path, chunk: int) -> None:
    path = write_gguf_model(tmp_path / "m.gguf", type_name="Q4_1", **SMALL).path
    start = path.read_bytes().index(b"tokenizer.ggml")
    damage(path, path, CHUNK, 5000, first=chunk * CHUNK, start=start, load=run)


@pytest.mark.slow
@pytest.mark.parametrize("family", EVERY_FAMILY)
def test_very_many_configurations_that_cannot_be(tmp_path: Path, family: str) -> None:
    file = a_family(tmp_path, family) / "config.json"
    check(tmp_path, file, hostile_json(file.read_bytes(), CHUNK, 60), run, first=60)


@pytest.mark.slow
@pytest.mark.parametrize("chunk", range(CHUNKS))
def test_very_many_tokenizers_that_cannot_be(tmp_path: Path, chunk: int) -> None:
    write_hf(tmp_path, **SMALL)
    file = tmp_path / "tokenizer.json"
    first = 150 + chunk * CHUNK
    check(tmp_path, file, hostile_json(file.read_bytes(), CHUNK, first), run, first=first)
