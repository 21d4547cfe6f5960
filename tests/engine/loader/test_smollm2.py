"""The real SmolLM2 file: every weight as the reference reader gives it, and quickly."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest

from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.quant.base import IntTensor
from colibri_engine.tokenizer import Tokenizer

HEADS = {"attn_q": 9, "attn_k": 3}


def test_every_weight_is_that_of_the_reference_reader(smollm2_gguf: Path) -> None:
    gguf = pytest.importorskip("gguf")
    from gguf.quants import dequantize

    table = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, 30)
    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(smollm2_gguf).tensors}
    checkpoint = open_checkpoint(smollm2_gguf)
    assert len(checkpoint.names()) == len(stored) == 272
    for name in checkpoint.names():
        tensor = stored[table.get_name(name, try_suffixes=(".weight",))]
        wanted = dequantize(tensor.data, tensor.tensor_type)
        for part, heads in HEADS.items():
            if f".{part}." in tensor.name:
                pairs = wanted.reshape(heads, 32, 2, 576)
                wanted = pairs.swapaxes(1, 2).reshape(wanted.shape)
        found = checkpoint.array(name)
        assert found.tobytes() == np.ascontiguousarray(wanted, np.float32).tobytes(), name
    checkpoint.close()


def test_the_configuration_is_the_published_one(smollm2_gguf: Path) -> None:
    checkpoint = open_checkpoint(smollm2_gguf)
    published = {
        "model_type": "llama", "hidden_size": 576, "num_hidden_layers": 30,
        "num_attention_heads": 9, "num_key_value_heads": 3, "head_dim": 64,
        "intermediate_size": 1536, "vocab_size": 49152, "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5, "tie_word_embeddings": True, "attention_bias": False,
        "rope_parameters": {"rope_type": "default", "rope_theta": 100000.0},
    }  # fmt: skip
    assert {key: checkpoint.config[key] for key in published} == published
    assert checkpoint.chat_template is not None
    assert "SmolLM" in checkpoint.chat_template
    checkpoint.close()


def seconds_of_plain_work() -> float:
    """Return the processor time of work that takes 0.13 s on an idle core of a recent server."""
    start = time.process_time()
    table = {str(number): number for number in range(300_000)}
    assert len(table) == 300_000
    return time.process_time() - start


@pytest.mark.timed
def test_opening_reading_and_the_tokenizer_take_less_than_a_second(smollm2_gguf: Path) -> None:
    shares = []
    for _ in range(3):
        unit = seconds_of_plain_work()  # whatever slows this down slows the reading down as much
        start = time.process_time()
        checkpoint = open_checkpoint(smollm2_gguf)
        Tokenizer(checkpoint.tokenizer)
        integers = 0
        for name in checkpoint.names():
            integers += isinstance(checkpoint.tensor(name), IntTensor)
        checkpoint.close()
        shares.append((time.process_time() - start) / unit)
        assert integers == 211
    assert min(shares) < 5  # 0.65 s
