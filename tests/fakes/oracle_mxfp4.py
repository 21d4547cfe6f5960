"""A gpt_oss reference model whose experts are stored in MXFP4 blocks."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import torch
from safetensors.torch import save_file

from tests.fakes.oracle_models import Oracle, ask, make
from tests.fakes.tiny_checkpoint import store_mxfp4, tokenizer_json, write_json

if TYPE_CHECKING:
    from pathlib import Path


def build_gpt_oss_mxfp4(directory: Path) -> Oracle:
    """Build, save and run gpt_oss with experts in MXFP4 blocks; see `build`.

    The reference computes with the values the blocks stand for.
    """
    model = make("gpt_oss")
    packed: dict[str, torch.Tensor] = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                values = p.transpose(1, 2).contiguous().numpy()  # blocks are [outputs, inputs]
                blocks, scales, exact = store_mxfp4(values)
                packed[f"{name}_blocks"] = torch.from_numpy(blocks)
                packed[f"{name}_scales"] = torch.from_numpy(scales)
                p.copy_(torch.from_numpy(exact).transpose(1, 2))
    rest = {
        name: p.detach().clone()
        for name, p in model.named_parameters()
        if f"{name}_blocks" not in packed
    }
    model.config.save_pretrained(directory)
    config = json.loads((directory / "config.json").read_text())
    write_json(
        directory / "config.json", config | {"quantization_config": {"quant_method": "mxfp4"}}
    )
    save_file({**rest, **packed}, directory / "model.safetensors", metadata={"format": "pt"})
    write_json(directory / "tokenizer.json", tokenizer_json())
    return ask(model, directory)
