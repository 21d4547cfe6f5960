#!/usr/bin/env python3
r"""A scripted engine for coding agents: a long context, and tool calls in an order given by a list.

`agent_engine.json` in the model directory (SNAP) tells it what to say, beside what it may hold for
`fake_engine`:

    "steps"   what the model does one after another, each {"tool": NAME, "arguments": {…}} or
              {"text": "…"}. The number of tool results in the prompt says which is next.
    "plain"   the reply to a prompt that offers no tools (titles, summaries, aider's edits)

It counts a token for every four bytes, as the fake does, and its model is one whose template
declares tools and writes calls in the Hermes form. A step whose tool the client
did not offer is answered with a text that says so, so that a test fails by name. Every prompt is
appended to `prompts.txt` in the model directory, every grammar to `grammars.txt`, one in a line.
"""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from pathlib import Path
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [str(Path(__file__).resolve().parents[2] / part) for part in ("", "engine")]

from colibri_protocol.messages import RequestOptions, Segment, Word
from tests.fakes.fake_engine import WORDS, FakeEngine, load_config

CONTEXT_LENGTH = 65_536
RESULT = "<tool_response>\n"
# ChatML with tools in the form of Qwen, so that the gateway takes the model for one that calls.
TEMPLATE = (
    "{% if tools %}<|im_start|>system\n<tools>\n"
    "{% for tool in tools %}{{ tool | tojson }}\n{% endfor %}</tools>\n"
    'Call with <tool_call>\n{"name": NAME, "arguments": {}}\n</tool_call><|im_end|>\n{% endif %}'
    "{% for message in messages %}{% if message.role == 'tool' %}<|im_start|>user\n"
    "<tool_response>\n{{ message.content }}\n</tool_response><|im_end|>\n"
    "{% else %}<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}'
    "\n</tool_call>{% endfor %}<|im_end|>\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SEPARATOR = "\n======== prompt ========\n"


class AgentEngine(FakeEngine):
    """The fake, but what it says depends on how far the conversation is."""

    def __init__(self, config: dict[str, Any], directory: Path) -> None:
        words = [*WORDS, Word.GRAMMAR]  # written down; the script already is what they ask for
        defaults = {"context_length": CONTEXT_LENGTH, "words": words}
        super().__init__({**defaults, **config}, speaks_caps=True)
        self.model |= {"train_context_length": CONTEXT_LENGTH, "chat_template": TEMPLATE}
        self.steps: list[dict[str, Any]] = config.get("steps", [])
        self.plain: str = config.get("plain", "A small edit")
        self.record = directory / "prompts.txt"

    def submit(
        self, request: int, slot: int, options: RequestOptions, segments: tuple[Segment, ...]
    ) -> None:
        """Refuse a request or begin the reply of the step it has reached."""
        super().submit(request, slot, options, segments)
        prompt = "".join(segment.text for segment in segments)
        with self.record.open("a") as file:
            file.write(SEPARATOR + prompt)
        if options.grammar is not None:
            line = json.dumps({"kind": options.grammar.kind, "text": options.grammar.text})
            with self.record.with_name("grammars.txt").open("a") as file:
                file.write(line + "\n")
        if request in self.turns:
            turn = self.turns[request]
            turn.script = {}  # what an agent quotes is no directive
            turn.pieces = iter(re.findall(rb"\s*\S+|\s+$", self.reply_to(prompt).encode()))

    def reply_to(self, prompt: str) -> str:
        """Return the text of the step that comes next in a conversation."""
        offered = tool_names(prompt)
        if not offered:
            return self.plain
        step = self.steps[min(prompt.count(RESULT), len(self.steps) - 1)]
        if "text" in step:
            return str(step["text"])
        if step["tool"] not in offered:
            return f"No tool {step['tool']} among {', '.join(sorted(offered))}."
        call = {"name": step["tool"], "arguments": step["arguments"]}
        return f"<tool_call>\n{json.dumps(call)}\n</tool_call>"


def tool_names(prompt: str) -> set[str]:
    """Return the names of the tools a prompt declares."""
    declared = re.search(r"<tools>\n(.*?)</tools>\n", prompt, re.DOTALL)
    if declared is None:
        return set()
    return {json.loads(line)["function"]["name"] for line in declared[1].splitlines()}


def write_executable(directory: Path) -> Path:
    """Write a script into `directory` that runs this engine with the current interpreter."""
    script = directory / "agent-engine"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{Path(__file__).resolve()}' \"$@\"\n")
    script.chmod(0o755)
    return script


def main() -> int:
    """Run as an engine."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    directory = Path(os.environ.get("SNAP", "."))
    config = load_config()
    script = directory / "agent_engine.json"
    if script.is_file():
        config |= json.loads(script.read_text())
    engine = AgentEngine(config, directory)
    try:
        engine.start()
        engine.run()
    except BrokenPipeError:
        os._exit(0)
    return 0


if __name__ == "__main__":
    sys.exit(main())
