"""Tokens per second with drafts and without, on text that repeats itself and on text that does not.

    python benchmarks/drafts.py MODEL.gguf ... [--rounds 5] [--tokens 160] [--threads N]
        [--modes off auto ngram:4] [--slots 1] [--prompts story "code edit"] [--cap N]

A mode is a value of COLI_DRAFT, or that with the number of guesses per step after a colon. Every
round runs every prompt in every mode, one after the other, each in an engine of its own that keeps
what it has learned; the medians count. Prompts: a file to be written once more with a change, a
list of JSON objects to be continued, an object under a JSON schema, a story and an explanation.
With --cap experts are read from disk, as many kept of each layer.
Decoding is greedy, and the ids of all modes must be the same: exits 1 otherwise.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

import numpy as np

from benchmarks.speeds import facts_text, machine_facts
from colibri_engine import startup
from colibri_engine.config import read_config
from colibri_engine.engine_config import DraftConfig, MemoryConfig
from colibri_protocol.messages import (
    Finished,
    Grammar,
    RequestFailed,
    RequestOptions,
    SubmitExtended,
    TokenLogprobs,
)

if TYPE_CHECKING:
    from colibri_protocol.messages import EngineMessage

CODE: Final = '''
class Counter:
    """Counts words."""

    def __init__(self) -> None:
        self.count = 0
        self.words = {}

    def add(self, word: str) -> None:
        self.count += 1
        self.words[word] = self.words.get(word, 0) + 1

    def most_common(self, size: int) -> list[str]:
        return sorted(self.words, key=self.words.get, reverse=True)[:size]

    def clear(self) -> None:
        self.count = 0
        self.words = {}
'''
PEOPLE: Final = "".join(
    json.dumps({"id": place, "name": name, "email": f"{name.lower()}@example.com", "active": True})
    + ",\n"
    for place, name in enumerate(("Alice", "Bob", "Carol", "Dave", "Erin", "Frank"), 1)
)
SCHEMA: Final = json.dumps({
    "type": "object",
    "properties": {
        "location": {"type": "string", "maxLength": 20},
        "temperature_celsius": {"type": "integer"},
        "conditions": {"enum": ["sunny", "cloudy", "rainy"]},
        "wind_speed_kilometres_per_hour": {"type": "integer"},
        "chance_of_rain_percent": {"type": "integer"},
    },
    "required": [
        "location", "temperature_celsius", "conditions", "wind_speed_kilometres_per_hour",
        "chance_of_rain_percent",
    ],
    "additionalProperties": False,
})  # fmt: skip
PROMPTS: Final = {
    "code edit": f"The file:\n```python{CODE}```\nThe file with `clear` renamed to `reset`:\n"
    "```python\nclass Counter:\n",
    "JSON list": f"[\n{PEOPLE}",
    "schema": "The weather in Paris today as JSON: ",
    "story": "Once upon a time, in a small village between two mountains, there lived",
    "explanation": "Photosynthesis is the process by which",
}


@dataclass
class Runner:
    """One engine in one mode.

    Args:
        path: The model.
        mode: Name of the mode.
        threads: Threads that compute, None: the usual number.
        num_slots: Replies at once, all of the same prompt.
        cap: Experts of each layer that stay in memory; None: all that fit.
    """

    path: Path
    mode: str
    threads: int | None
    num_slots: int
    cap: int | None = None
    speeds: dict[str, list[float]] = field(default_factory=dict)
    shares: dict[str, float] = field(default_factory=dict)  # tokens per step of a reply
    accepted: dict[str, str] = field(default_factory=dict)
    _last_id: int = 0

    def __post_init__(self) -> None:
        """Load the model."""
        source, _, tokens = self.mode.partition(":")
        drafts = DraftConfig(source=source, tokens=int(tokens) if tokens else None)
        config = replace(
            read_config((), {"SNAP": str(self.path), "COLI_KV_SAVE": "0"}),
            drafts=drafts,
            num_threads=self.threads,
            num_slots=self.num_slots,
            memory=MemoryConfig(cap=self.cap, may_raise=self.cap is None),
        )
        loaded = startup.load(config)
        self._engine, self._tokenizer = loaded.engine, loaded.tokenizer
        self._compiler = loaded.compiler

    def run(self, kind: str, num_tokens: int) -> list[int]:
        """Answer a prompt; return the ids of the first reply."""
        prompt = np.array(self._tokenizer.encode_text(PROMPTS[kind]), np.int32)
        is_bound = kind == "schema"
        before = self._counts()
        messages: list[EngineMessage] = []
        first = self._last_id + 1
        for _ in range(self.num_slots):
            self._last_id += 1
            options = RequestOptions(
                temperature=0.0, max_tokens=num_tokens, ignore_eos=not is_bound, logprobs=0
            )
            constraint = (
                self._compiler.compile(Grammar("json_schema", SCHEMA)) if is_bound else None
            )
            request = SubmitExtended(self._last_id, -1, options, ())
            messages += self._engine.submit(request, prompt, constraint)
        while not any(isinstance(m, TokenLogprobs) and m.id == self._last_id for m in messages):
            messages += self._engine.step()  # the prompts
        told, steps, started = _num_told(messages), 0, time.perf_counter()
        while not self._engine.is_idle:
            messages += self._engine.step()
            steps += 1
        elapsed = time.perf_counter() - started
        assert not any(isinstance(m, RequestFailed) for m in messages), messages
        assert sum(isinstance(m, Finished) for m in messages) == self.num_slots
        decoded = _num_told(messages) - told
        self.speeds.setdefault(kind, []).append(decoded / elapsed)
        self.shares[kind] = decoded / steps / self.num_slots
        self.accepted[kind] = ", ".join(
            f"{source} {now[1] - old[1]} of {now[0] - old[0]}"
            for (source, now), old in zip(self._counts().items(), before.values(), strict=True)
            if now[0] > old[0]
        )
        return [m.token_id for m in messages if isinstance(m, TokenLogprobs) and m.id == first]

    def _counts(self) -> dict[str, tuple[int, int]]:
        drafts: dict[str, dict[str, int]] = self._engine.report()["drafts"]  # type: ignore[assignment]
        return {name: (counts["drafted"], counts["accepted"]) for name, counts in drafts.items()}


def _num_told(messages: list[EngineMessage]) -> int:
    return sum(isinstance(m, TokenLogprobs) for m in messages)


def measure(path: Path, args: argparse.Namespace) -> bool:
    """Print the table of one model; return whether all modes said the same."""
    runners = [Runner(path, mode, args.threads, args.slots, args.cap) for mode in args.modes]
    is_same = True
    for _ in range(args.rounds):
        for kind in args.prompts:
            answers = [runner.run(kind, args.tokens) for runner in runners]
            is_same &= all(answer == answers[0] for answer in answers)
    print(f"\n{path.name}, {args.slots} at once, {args.tokens} tokens, {args.rounds} rounds")
    print(f"  {'prompt':12} {'mode':9} {'tokens/s':>9} {'ratio':>6} {'a step':>7}  came true")
    for kind in args.prompts:
        usual = median(runners[0].speeds[kind])
        for runner in runners:
            speed = median(runner.speeds[kind])
            print(
                f"  {kind:12} {runner.mode:9} {speed:9.1f} {speed / usual:6.2f}"
                f" {runner.shares[kind]:7.2f}  {runner.accepted[kind]}"
            )
    print("  ids of all modes:", "the same" if is_same else "DIFFERENT")
    return is_same


def main() -> int:
    """Measure every model."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("models", type=Path, nargs="+")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=160)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--slots", type=int, default=1)
    parser.add_argument("--cap", type=int)
    parser.add_argument("--modes", nargs="+", default=["off", "auto", "ngram:4"])
    parser.add_argument("--prompts", nargs="+", default=list(PROMPTS), choices=list(PROMPTS))
    args = parser.parse_args()
    print(facts_text(machine_facts()))
    results = [measure(path, args) for path in args.models]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
