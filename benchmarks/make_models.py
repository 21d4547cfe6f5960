"""Write the models the benchmarks measure.

    python benchmarks/make_models.py OUT [--source SmolLM2-135M-Instruct.Q4_1.gguf]

    OUT/smollm2-q8_0.gguf   every matrix Q8_0      } from the values of the pulled Q4_1 file
    OUT/smollm2-q4_0.gguf   Q4_0, embedding Q8_0   }
    OUT/smollm2-f32/        the same values as a Hugging Face directory in float32
    OUT/random-1g-q4_0.gguf a random llama of about 1 GB, for shares of the read bandwidth

Needs the PyPI packages `gguf` and `safetensors` beside coli.
"""

from __future__ import annotations

import argparse
import json
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

from colibri_cli.paths import models_dir
from colibri_engine.loader.checkpoint import open_checkpoint

if TYPE_CHECKING:
    import numpy.typing as npt

# 1.8e9 weights at 4.5 bits: 1.01 GB, all of it read for every token.
RANDOM_SHAPE = {"layers": 28, "hidden": 2048, "ffn": 8192, "heads": 32, "kv_heads": 8}

FILE_TYPES = {Type.Q4_0: 2, Type.Q8_0: 7}  # as GGUF writes them in general.file_type


def copy_metadata(
    reader: gguf.GGUFReader, writer: gguf.GGUFWriter, changes: dict[str, int]
) -> None:
    """Carry over every pair but those the writer makes itself, with other integers in some."""
    for field in reader.fields.values():
        if field.name.startswith("GGUF.") or field.name == "general.architecture":
            continue
        if field.name in changes:
            writer.add_uint32(field.name, changes[field.name])
            continue
        kind = field.types[0]
        inner = field.types[-1] if kind == gguf.GGUFValueType.ARRAY else None
        writer.add_key_value(field.name, field.contents(), kind, inner)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write header, pairs and tensors."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def requantize(source: Path, out: Path, kind: Type) -> None:
    """Write `source` with every layer matrix in another format, the embedding in Q8_0."""
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, "llama")
    copy_metadata(reader, writer, {"general.file_type": FILE_TYPES[kind]})
    for tensor in reader.tensors:
        values = gguf.quants.dequantize(tensor.data, tensor.tensor_type)
        if values.ndim == 1:
            writer.add_tensor(tensor.name, values)
            continue
        chosen = Type.Q8_0 if tensor.name == "token_embd.weight" else kind
        writer.add_tensor(tensor.name, gguf.quants.quantize(values, chosen), raw_dtype=chosen)
    finish(writer)


def write_hf_f32(source: Path, out: Path) -> None:
    """Write the dequantized values as a Hugging Face directory in float32."""
    out.mkdir(parents=True, exist_ok=True)
    with closing(open_checkpoint(source)) as checkpoint:
        tensors = {
            name: np.ascontiguousarray(checkpoint.array(name)) for name in checkpoint.names()
        }
        config: dict[str, Any] = dict(checkpoint.config)
        template = checkpoint.chat_template
        tokenizer_json = checkpoint.tokenizer.build().to_str()
    save_file(tensors, out / "model.safetensors", metadata={"format": "pt"})
    config |= {"architectures": ["LlamaForCausalLM"], "torch_dtype": "float32"}
    (out / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    (out / "tokenizer.json").write_text(tokenizer_json, encoding="utf-8")
    (out / "tokenizer_config.json").write_text(
        json.dumps(
            {
                "tokenizer_class": "PreTrainedTokenizerFast",
                "chat_template": template,
                "bos_token": "<|im_start|>",
                "eos_token": "<|im_end|>",
            }
        ),
        encoding="utf-8",
    )


def random_q4_0(rng: np.random.Generator, outputs: int, inputs: int) -> npt.NDArray[np.uint8]:
    """Return (outputs, bytes of a row) of random Q4_0 blocks with scales near 0.01."""
    blocks = np.empty((outputs, inputs // 32, 18), np.uint8)
    blocks[:, :, 2:] = rng.integers(0, 256, (outputs, inputs // 32, 16), np.uint8)
    scales = rng.uniform(0.005, 0.015, (outputs, inputs // 32)).astype(np.float16)
    blocks[:, :, :2] = scales[:, :, None].view(np.uint8)
    return blocks.reshape(outputs, -1)


def write_random(source: Path, out: Path) -> None:
    """Write a random llama of about 1 GB at 4 bits, with the tokenizer of `source`."""
    rng = np.random.default_rng(1)
    reader = gguf.GGUFReader(source)
    writer = gguf.GGUFWriter(out, "llama")
    shape = RANDOM_SHAPE
    changes = {
        "general.file_type": FILE_TYPES[Type.Q4_0],
        "llama.block_count": shape["layers"],
        "llama.embedding_length": shape["hidden"],
        "llama.feed_forward_length": shape["ffn"],
        "llama.attention.head_count": shape["heads"],
        "llama.attention.head_count_kv": shape["kv_heads"],
        "llama.rope.dimension_count": shape["hidden"] // shape["heads"],
    }
    copy_metadata(reader, writer, changes)
    vocab_size = len(reader.fields["tokenizer.ggml.tokens"].data)
    hidden, ffn = shape["hidden"], shape["ffn"]
    kv_width = hidden // shape["heads"] * shape["kv_heads"]
    sizes = {
        "attn_q": (hidden, hidden), "attn_k": (kv_width, hidden), "attn_v": (kv_width, hidden),
        "attn_output": (hidden, hidden), "ffn_gate": (ffn, hidden), "ffn_up": (ffn, hidden),
        "ffn_down": (hidden, ffn),
    }  # fmt: skip
    ones = np.ones(hidden, np.float32)
    writer.add_tensor(
        "token_embd.weight", random_q4_0(rng, vocab_size, hidden), raw_dtype=Type.Q4_0
    )
    for layer in range(shape["layers"]):
        for norm in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{norm}.weight", ones)
        for name, (outputs, inputs) in sizes.items():
            writer.add_tensor(
                f"blk.{layer}.{name}.weight", random_q4_0(rng, outputs, inputs), raw_dtype=Type.Q4_0
            )
    writer.add_tensor("output_norm.weight", ones)
    finish(writer)


def main() -> None:
    """Write all models."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("out", type=Path, help="directory for the models")
    parser.add_argument("--source", type=Path, help="SmolLM2 Q4_1 file (default: the pulled one)")
    args = parser.parse_args()
    source: Path = args.source or next((models_dir() / "smollm2").glob("*.gguf"))
    args.out.mkdir(parents=True, exist_ok=True)
    requantize(source, args.out / "smollm2-q8_0.gguf", Type.Q8_0)
    requantize(source, args.out / "smollm2-q4_0.gguf", Type.Q4_0)
    write_hf_f32(source, args.out / "smollm2-f32")
    write_random(source, args.out / "random-1g-q4_0.gguf")
    for path in sorted(args.out.iterdir()):
        print(path)


if __name__ == "__main__":
    main()
