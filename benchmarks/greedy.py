"""Whether greedy decoding of real questions gives transformers' own tokens.

    python benchmarks/greedy.py MODEL.gguf [--numerics default] [--hf DIRECTORY]

Decodes 40 tokens after each prompt of `prompts.json` (chat template applied), past the end of the
answer if need be, and compares every token with the argmax of transformers in float32 on the same
weights: the dequantized GGUF file, or DIRECTORY (`make_models.py` writes one). Prints, for each
prompt, whether all are equal, and how close the reference's two best tokens ever came to each
other. Exits 1 on a difference. Needs the PyPI packages `torch`, `transformers` and `gguf`.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from colibri_cli.chat_formats.base import ChatMessage, Conversation
from colibri_cli.chat_formats.registry import format_for_model
from colibri_engine import kernels
from colibri_engine.loader.checkpoint import open_checkpoint
from colibri_engine.models.registry import load_model
from colibri_engine.tokenizer import Tokenizer

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from colibri_engine.loader.base import Checkpoint
    from colibri_engine.models.base import Model

    Ids = npt.NDArray[np.int32]

NUM_TOKENS = 40
PROMPTS: list[str] = json.loads(
    Path(__file__).with_name("prompts.json").read_text(encoding="utf-8")
)


@dataclass(frozen=True)
class Agreement:
    """How far one continuation agrees with the reference.

    Args:
        num_equal: Tokens before the first difference, or all of them.
        narrowest: Smallest gap in nats between the reference's two best tokens up to there, the
            place of the difference included.
    """

    num_equal: int
    narrowest: float


class Prompts:
    """Questions as a checkpoint's own chat template and tokenizer write them."""

    def __init__(self, checkpoint: Checkpoint) -> None:
        self.tokenizer = Tokenizer(checkpoint.tokenizer)
        special = checkpoint.special_tokens
        self._format = format_for_model(
            {
                "chat_template": checkpoint.chat_template,
                "special_tokens": self.tokenizer.special_tokens,
                "bos_token": special.bos_token,
                "eos_token": special.eos_token,
            }
        )

    def encode(self, question: str) -> Ids:
        """Return the ids of a conversation that begins with a question."""
        conversation = Conversation((ChatMessage("user", question),))
        segments = self._format.render(conversation).segments
        return np.array(self.tokenizer.encode(segments), np.int32)


def decode_greedily(model: Model, prompt: Ids, num_tokens: int) -> list[int]:
    """Return the ids of the likeliest continuation, token by token; nothing ends it early."""
    batch, cache = kernels.Batch(), model.make_cache()
    batch.set([(cache, 0, len(prompt))])
    logits = model.forward(prompt, batch, [len(prompt) - 1])
    ids = [int(logits[0].argmax())]
    while len(ids) < num_tokens:
        batch.set([(cache, cache.length, 1)])
        logits = model.forward(np.array(ids[-1:], np.int32), batch, [0])
        ids.append(int(logits[0].argmax()))
    return ids


class Reference:
    """Transformers' float32 model of the same weights.

    Args:
        path: A GGUF file, which is dequantized, or a Hugging Face directory.
    """

    def __init__(self, path: Path) -> None:
        import torch
        import transformers

        transformers.utils.logging.disable_progress_bar()
        source: dict[str, Any] = {"pretrained_model_name_or_path": path}
        if path.is_file():
            source = {
                "pretrained_model_name_or_path": path.parent,
                "gguf_file": path.name,
                "quantization_config": transformers.GgufConfig(dequantize=True),
            }
        self._torch = torch
        load = transformers.AutoModelForCausalLM.from_pretrained
        self._model = load(**source, dtype=torch.float32).eval()

    def judge(self, prompt: Ids, continuation: Sequence[int]) -> Agreement:
        """Compare a greedy continuation with this model's own.

        One pass over prompt and continuation is enough: as long as every argmax equals the token
        that follows, greedy decoding would have fed the same tokens.
        """
        ids = self._torch.tensor([[*prompt.tolist(), *continuation[:-1]]])
        with self._torch.no_grad():
            logits = self._model(ids, use_cache=False).logits[0, len(prompt) - 1 :].double()
        best = logits.topk(2)
        equal = best.indices[:, 0].numpy() == np.array(continuation)
        num_equal = len(continuation) if equal.all() else int(equal.argmin())
        gaps = (best.values[:, 0] - best.values[:, 1]).numpy()[: num_equal + 1]
        return Agreement(num_equal, float(gaps.min()))


def main() -> int:
    """Compare all prompts of one model."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("model", type=Path, help="GGUF file")
    parser.add_argument("--numerics", default="default", choices=("default", "fast", "float"))
    parser.add_argument("--hf", type=Path, help="the same weights as a Hugging Face directory")
    args = parser.parse_args()
    kernels.set_num_threads(os.cpu_count() or 1)
    with closing(open_checkpoint(args.model)) as checkpoint:
        prompts = Prompts(checkpoint)
        model = load_model(checkpoint, numerics=args.numerics)
    reference = Reference(args.hf or args.model)
    print(f"{args.model.name}, {args.numerics} numerics, {kernels.active_isa()}")
    failures = 0
    for question in PROMPTS:
        prompt = prompts.encode(question)
        ids = decode_greedily(model, prompt, NUM_TOKENS)
        found = reference.judge(prompt, ids)
        failures += found.num_equal < NUM_TOKENS
        answer = prompts.tokenizer.decode(ids).split("<|im_end|>")[0]
        print(
            f"  {found.num_equal:2} of {NUM_TOKENS} equal, narrowest gap {found.narrowest:.1e} "
            f"nats: {question} -> {answer[:60]!r}"
        )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
