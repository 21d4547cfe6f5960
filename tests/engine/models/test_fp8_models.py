"""Checkpoints in fp8 run as they are stored: same bits as their float32 products, less memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from colibri_engine import kernels
from tests.engine.models.conftest import forward_in_chunks, load
from tests.fakes.tiny_checkpoint import write_checkpoint, write_hf

IDS = np.random.default_rng(7).integers(0, 256, 24).astype(np.int32)
SIZES: dict[str, Any] = {"hidden_size": 128, "moe_intermediate_size": 96, "intermediate_size": 160}
FAMILIES = ["llama", "qwen3_moe", "deepseek_v3", "glm_moe_dsa"]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("numerics", ["default", "fast", "float"])
def test_a_model_gives_the_bits_of_its_products(tmp_path: Path, family: str, numerics: str) -> None:
    stored = write_hf(tmp_path / "fp8", family, dtype="F8_E4M3", fp8_block=(32, 32), **SIZES)
    plain = write_checkpoint(tmp_path / "f32", stored.config, stored.weights)
    wanted = forward_in_chunks(load(plain, numerics), IDS, 7)
    np.testing.assert_array_equal(forward_in_chunks(load(stored.path, numerics), IDS, 7), wanted)


@pytest.mark.parametrize("family", FAMILIES)
def test_no_way_of_running_changes_a_bit(tmp_path: Path, family: str) -> None:
    stored = write_hf(tmp_path, family, dtype="F8_E4M3", fp8_block=(32, 32), **SIZES)
    model = load(stored.path, "default")
    wanted = forward_in_chunks(model, IDS, len(IDS))
    isa, threads = kernels.active_isa(), kernels.num_threads()
    try:
        for name in kernels.available_isas():
            kernels.set_isa(name)
            for count in (1, 2):
                kernels.set_num_threads(count)
                for chunk in (1, 7, 24):
                    found = forward_in_chunks(model, IDS, chunk)
                    np.testing.assert_array_equal(found, wanted, err_msg=name)
    finally:
        kernels.set_isa(isa)
        kernels.set_num_threads(threads)


def test_a_matrix_takes_a_byte_for_a_weight(tmp_path: Path) -> None:
    sizes: dict[str, Any] = {"hidden_size": 256, "intermediate_size": 1024}
    stored = write_hf(tmp_path / "fp8", "llama", dtype="F8_E4M3", **sizes)
    plain = write_checkpoint(tmp_path / "f32", stored.config, stored.weights)
    assert load(stored.path, "default").resident_bytes < load(plain, "default").resident_bytes / 2.5
