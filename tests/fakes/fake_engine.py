#!/usr/bin/env python3
r"""A scripted engine: speaks the real protocol, has no model, does what the prompt tells it to.

Run it where an engine is expected (`--engine-bin tests/fakes/fake_engine.py`), or let
`write_executable(directory)` make a script that runs it with the interpreter of the tests.

Directives in the prompt choose the reply. In a framed prompt only the last text segment counts
(the newest user message), in a baseline prompt the whole text does.

    [[reply TEXT]]       the reply, one piece per word (default "Hello from the fake engine.")
    [[pieces A|B|C]]     the reply, exactly these pieces
    [[json "TEXT"]]      the reply, written so that it may hold any character
    [[echo]] [[prompt]] [[options]]   the reply is the last text, the whole prompt, the options JSON
    [[tokens N]] [[endless]]          N pieces; pieces until STOP, CANCEL or max_tokens
    [[utf8]] [[invalid-utf8]]         every byte of a text a piece of its own; broken UTF-8
    [[slow S]] [[silent S]] [[late S]]   S seconds before each piece, the first, ACCEPT
    [[gate FILE]]        no piece before the file exists
    [[warn N]]           a warning on standard error after N pieces
    [[die N]] [[exit CODE N]] [[hang N]] [[garbage N]]   after N pieces (default 0): SIGKILL itself,
                         leave with a code, answer nothing any more, break the framing
    [[error CODE …]]     refuse before ACCEPT; [[late-error CODE …]] after the pieces
    [[error0]] [[twice]] [[no-accept]] [[unknown]]   ERROR 0; a second ACCEPT; none; unknown lines

How it starts is told by JSON, in the file `fake_engine.json` in the model directory (SNAP) or in
the variable FAKE_ENGINE: {"delay_s": 1, "noise": true, "stderr": "text", "exit_code": 3,
"hang": true, "bad_stat": true, "failed": {"code", "message", "hint"}, "words": ["options"],
"model": {…}, "num_slots": 4, "context_length": 4096, "lines": ["GPUS 1 2 80 9"]}.
Without COLI_CAPS=1 in its environment it speaks the baseline alone.
"""

from __future__ import annotations

import heapq
import itertools
import json
import os
import re
import selectors
import signal
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "engine"))

from colibri_protocol.errors import RemoteProtocolError
from colibri_protocol.frames import GatewayLineDecoder, encode
from colibri_protocol.messages import (
    Accepted,
    Cancel,
    Caps,
    Count,
    Counted,
    EngineMessage,
    EngineStat,
    ExpertHits,
    ExpertMap,
    Finished,
    FinishReason,
    HardwareInfo,
    ModelInfo,
    Ping,
    Pong,
    Progress,
    Ready,
    RequestFailed,
    RequestOptions,
    Segment,
    SegmentKind,
    StartFailed,
    StatsQuery,
    StatsReport,
    Stop,
    Submit,
    SubmitExtended,
    TextDelta,
    TierCounts,
    TokenAlternative,
    TokenLogprobs,
    TurnProfile,
    Word,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT_REPLY = "Hello from the fake engine."
END_ID = 2
WORDS = [word for word in Word if word not in {Word.GRAMMAR, Word.DRAFT}]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MODEL: dict[str, Any] = {
    "id": "fake",
    "family": "llama",
    "chat_template": TEMPLATE,
    "bos_token": "<|im_start|>",
    "eos_token": "<|im_end|>",
    "special_tokens": {"<|im_start|>": 1, "<|im_end|>": END_ID},
    "eos_token_ids": [END_ID],
    "context_length": 4096,
    "train_context_length": 8192,
    "architecture": {"hidden_size": 64},
    "num_layers": 2,
    "num_experts": 4,
    "mixture_layers": [1, 2],
    "draft_layer": None,
    "num_experts_per_token": 2,
    "vocab_size": 1000,
    "num_slots": 4,
    "numerics": "default",
    "isa": "scalar",
    "num_threads": 1,
    "file_bytes": 1000,
    "resident_bytes": 1000,
    "generation": {"temperature": 0.7, "top_p": 0.9, "max_tokens": 256},
}
_DIRECTIVE = re.compile(r"\[\[([a-z0-9-]+) ?(.*?)\]\]", re.DOTALL)


def write_executable(directory: Path) -> Path:
    """Write a script into `directory` that runs this engine with the current interpreter."""
    script = directory / "fake-engine"
    script.write_text(f"#!/bin/sh\nexec '{sys.executable}' '{Path(__file__).resolve()}' \"$@\"\n")
    script.chmod(0o755)
    return script


@dataclass
class Turn:
    """One request in progress."""

    id: int
    slot: int
    prompt: str
    prompt_tokens: int
    max_tokens: int
    options: RequestOptions
    script: dict[str, str]
    pieces: Iterator[bytes]
    started: float = field(default_factory=time.monotonic)
    num_sent: int = 0
    finish: FinishReason | None = None
    is_accepted: bool = False


def count_tokens(text: str) -> int:
    """Four bytes are a token here."""
    return (len(text.encode()) + 3) // 4


def pieces_of(script: dict[str, str], prompt: str, last: str, options: str) -> Iterator[bytes]:
    """Choose the pieces of a reply."""
    if "pieces" in script:
        return iter([piece.encode() for piece in script["pieces"].split("|")])
    if "tokens" in script:
        return (b"word%d " % n for n in range(int(script["tokens"])))
    if "endless" in script:
        return (b"word%d " % n for n in itertools.count())
    if "utf8" in script:
        return iter([bytes([byte]) for byte in "Grüße, 世界 👋".encode()])
    if "invalid-utf8" in script:
        return iter([b"ok", b"\xff\xfe", b"ok", b"\xe4\xb8"])
    texts = {"echo": last, "prompt": prompt, "options": options}
    chosen = next((text for name, text in texts.items() if name in script), None)
    text = script.get("reply", DEFAULT_REPLY) if chosen is None else chosen
    text = json.loads(script["json"]) if "json" in script else text
    return iter([piece.encode() for piece in re.findall(r"\s*\S+\s*?(?=\s|$)|\s+", text)])


class FakeEngine:
    """The whole engine: one loop over standard input and a clock."""

    def __init__(self, config: dict[str, Any], *, speaks_caps: bool) -> None:
        self.config = config
        self.words = frozenset(config.get("words", WORDS)) if speaks_caps else frozenset[str]()
        self.speaks_caps = speaks_caps
        self.model = MODEL | config.get("model", {})
        for name in ("num_slots", "context_length"):
            self.model[name] = config.get(name, self.model[name])
        self.turns: dict[int, Turn] = {}
        self.timers: list[tuple[float, int, int]] = []
        self.last_id = 0
        self.num_requests = 0
        self.is_hung = False

    def send(self, message: EngineMessage) -> None:
        """Write one frame at once."""
        self.write(encode(message))

    def write(self, data: bytes) -> None:
        """Write bytes, whatever they are."""
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()

    # ---- start ----

    def start(self) -> None:
        """Do what the configuration says, then greet."""
        config = self.config
        if "stderr" in config:
            print(config["stderr"], file=sys.stderr, flush=True)
        time.sleep(config.get("delay_s", 0))
        if config.get("noise"):
            self.write(b"loading...\n\x01\x01READ\x00\xff 100 %\n")
        if "failed" in config:
            failed: dict[str, Any] = {
                "code": "engine_error",
                "message": "no",
                "hint": None,
                "details": {},
            }
            if self.speaks_caps:
                self.send(StartFailed(**(failed | config["failed"])))
            config.setdefault("exit_code", 3)
        if "exit_code" in config:
            sys.exit(config["exit_code"])
        while config.get("hang"):
            time.sleep(60)
        self.send(Ready())
        if self.speaks_caps:
            self.send(Caps(self.words))
        if config.get("bad_stat"):
            self.write(b"STAT what\n")
        self.send(EngineStat(0.25))
        self.send(HardwareInfo(2, 16.0, 8.0, 0, 0.0, "Fake CPU", ""))
        self.send_tiers()
        for line in config.get("lines", []):
            self.write(f"{line}\n".encode())
        if Word.MODEL in self.words:
            self.send(ModelInfo(self.model))

    def send_tiers(self) -> None:
        """Send where the experts are."""
        self.send(TierCounts(0, 6, 2, 0.0, 0.5))
        self.send(ExpertMap(2, 4, bytes([0x41, 0x42, 0x43, 0x00, 0x45, 0x46, 0x00, 0x48])))

    # ---- loop ----

    def run(self) -> None:
        """Serve until standard input ends and every reply is complete."""
        decoder = GatewayLineDecoder()
        selector = selectors.DefaultSelector()
        selector.register(0, selectors.EVENT_READ)
        is_open = True
        while is_open or self.turns:
            wait = max(0.0, self.timers[0][0] - time.monotonic()) if self.timers else None
            if is_open and selector.select(wait):
                data = os.read(0, 65536)
                is_open = bool(data)
                if not data:
                    selector.unregister(0)
                for message in decoder.feed(data):
                    self.receive(message)
            elif not is_open:
                time.sleep(wait or 0.0)
            while self.timers and self.timers[0][0] <= time.monotonic():
                request = heapq.heappop(self.timers)[2]
                if request in self.turns:
                    self.advance(self.turns[request])

    def later(self, turn: Turn, delay_s: float) -> None:
        """Call `advance` again after a while."""
        heapq.heappush(self.timers, (time.monotonic() + delay_s, turn.num_sent, turn.id))

    def receive(self, message: object) -> None:
        """Handle one message of the gateway."""
        match message:
            case _ if self.is_hung:
                pass
            case RequestFailed():
                self.send(message)
            case Ping(number):
                self.send(Pong(number))
            case Count(request, segments):
                self.send(Counted(request, count_tokens("".join(s.text for s in segments))))
            case StatsQuery(request):
                self.send(StatsReport(request, {"num_requests": self.num_requests}))
            case Stop(request) | Cancel(request) if request not in self.turns:
                self.send(RequestFailed(request, "NOT_FOUND"))
            case Stop(request):
                self.finish(self.turns.pop(request), FinishReason.STOPPED)
            case Cancel(request):
                del self.turns[request]
                self.send(RequestFailed(request, "CANCELLED"))
            case Submit(request, slot, prompt, max_tokens, temperature, top_p):
                options = RequestOptions(
                    max_tokens=max_tokens, temperature=temperature, top_p=top_p
                )
                segment = Segment(SegmentKind.TEXT, prompt.decode())
                self.submit(request, slot, options, (segment,))
            case SubmitExtended(request, slot, options, segments):
                self.submit(request, slot, options, segments)
            case _:
                raise AssertionError(message)

    def submit(
        self, request: int, slot: int, options: RequestOptions, segments: tuple[Segment, ...]
    ) -> None:
        """Refuse a request or begin its reply."""
        prompt = "".join(segment.text for segment in segments)
        last = next((s.text for s in reversed(segments) if s.kind is SegmentKind.TEXT), prompt)
        script = {name: text.strip() for name, text in _DIRECTIVE.findall(last)}
        busy = {turn.slot for turn in self.turns.values()}
        if slot < 0:
            slot = min(set(range(self.model["num_slots"])) - busy, default=-1)
        num_tokens = count_tokens(prompt)
        limit = self.model["context_length"]
        refusal = script.get("error", "")
        if request <= self.last_id:
            refusal = "DUPLICATE_ID"
        elif not prompt:
            refusal = "EMPTY_PROMPT"
        elif slot in busy or not 0 <= slot < self.model["num_slots"]:
            refusal = "SLOT_BUSY"
        elif num_tokens > limit:
            refusal = f"CONTEXT_EXCEEDED {num_tokens} {limit}"
        self.last_id = max(request, self.last_id)
        self.num_requests += 1
        if refusal or "error0" in script:
            code, _, detail = (refusal or "BAD_REQUEST").partition(" ")
            self.send(RequestFailed(0 if "error0" in script else request, code, detail))
            return
        plain = _DIRECTIVE.sub("", last).strip()
        pieces = pieces_of(script, prompt, plain, options.to_json().decode())
        room = max(1, limit - num_tokens)
        max_tokens = min(options.max_tokens or room, room)
        turn = Turn(request, slot, prompt, num_tokens, max_tokens, options, script, pieces)
        self.turns[request] = turn
        if "late" in script:
            self.later(turn, float(script["late"]))
        else:
            self.accept(turn)

    def accept(self, turn: Turn) -> None:
        """Say that a request is good, and how its prompt is read."""
        script, num_tokens, turn.is_accepted = turn.script, turn.prompt_tokens, True
        for _ in range(0 if "no-accept" in script else 2 if "twice" in script else 1):
            extra = (num_tokens // 2, turn.slot) if self.speaks_caps else (None, None)
            self.send(Accepted(turn.id, num_tokens, *extra))
        if Word.PROGRESS in self.words:
            for done in sorted({num_tokens // 2, num_tokens}):
                self.send(Progress(turn.id, done, num_tokens))
        self.later(turn, float(script.get("silent", 0)) + float(script.get("slow", 0)))

    def advance(self, turn: Turn) -> None:
        """Send one more piece, or end the reply."""
        if not turn.is_accepted:
            self.accept(turn)
            return
        if "gate" in turn.script and not Path(turn.script["gate"]).exists():
            self.later(turn, 0.02)
            return
        self.misbehave(turn)
        if self.is_hung:
            return
        piece = next(turn.pieces, None) if turn.num_sent < turn.max_tokens else None
        if piece is None:
            del self.turns[turn.id]
            limited = turn.num_sent >= turn.max_tokens
            self.finish(turn, FinishReason.LENGTH if limited else FinishReason.STOP)
            return
        if turn.options.logprobs is not None:
            top = tuple(
                TokenAlternative(n, -0.5 - n, b"alt%d" % n) for n in range(turn.options.logprobs)
            )
            self.send(TokenLogprobs(turn.id, turn.num_sent, -0.25, piece, top))
        self.send(TextDelta(turn.id, piece))
        turn.num_sent += 1
        self.later(turn, float(turn.script.get("slow", 0)))

    def misbehave(self, turn: Turn) -> None:
        """Die, hang or talk nonsense when the script says so."""
        script = turn.script
        exit_code, _, after = script.get("exit", "").partition(" ")
        if "unknown" in script:
            self.write(b"FOO 1 2\n\nPERF what\nPROF 1 2\nDATA 999999 2\nhi\n")
        if "die" in script and turn.num_sent == int(script["die"] or 0):
            print("fake engine: dying on demand", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL)
        if "exit" in script and turn.num_sent == int(after or 0):
            print("fake engine: leaving on demand", file=sys.stderr, flush=True)
            os._exit(int(exit_code or 1))
        if "warn" in script and turn.num_sent == int(script["warn"] or 0):
            print("coli-engine: WARNING: a disk was slow", file=sys.stderr, flush=True)
        if "garbage" in script and turn.num_sent == int(script["garbage"] or 0):
            self.write(b"DATA x y\n\x00\xff")
        if "hang" in script and turn.num_sent == int(script["hang"] or 0):
            self.is_hung = True

    def finish(self, turn: Turn, reason: FinishReason) -> None:
        """Send the figures of a reply and its end."""
        if "late-error" in turn.script:
            code, _, detail = turn.script["late-error"].partition(" ")
            self.send(RequestFailed(turn.id, code, detail))
            return
        wall = max(1e-3, time.monotonic() - turn.started)
        sent = turn.num_sent
        self.send(TurnProfile(wall, turn.prompt_tokens, sent, 0.1, 0.0, 0.2, 0.3, 0.1, sent + 1))
        self.send_tiers()
        self.send(ExpertHits(2, 4, b"\x0f"))
        stop_id = END_ID if reason is FinishReason.STOP else -1
        self.send(
            Finished(
                turn.id,
                sent,
                sent / wall,
                50.0,
                0.25,
                turn.prompt_tokens,
                reason is FinishReason.LENGTH,
                turn.prompt_tokens // 2,
                reason if self.speaks_caps else None,
                stop_id if self.speaks_caps else None,
            )
        )


def load_config() -> dict[str, Any]:
    """Read how to start."""
    config: dict[str, Any] = {}
    path = Path(os.environ.get("SNAP", ".")) / "fake_engine.json"
    if path.is_file():
        config |= json.loads(path.read_text())
    config |= json.loads(os.environ.get("FAKE_ENGINE", "{}"))
    return config


def main() -> int:
    """Run as an engine."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    engine = FakeEngine(load_config(), speaks_caps=os.environ.get("COLI_CAPS") == "1")
    try:
        engine.start()
        engine.run()
    except BrokenPipeError:
        os._exit(0)
    except RemoteProtocolError as exc:
        print(f"fake engine: {exc.message}", file=sys.stderr)
        engine.send(RequestFailed(0, "BAD_FRAME", exc.message))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
