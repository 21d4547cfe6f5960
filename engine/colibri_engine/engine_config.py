"""What one engine process is told, as plain data; `colibri_engine.config` reads it. A leaf."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAX_DRAFTED_ROWS: Final = 64  # of one step, all replies together: each has its logits


@dataclass(frozen=True, slots=True)
class DraftConfig:
    """How tokens are guessed ahead.

    Args:
        source: "off", "auto", or the one source to use.
        tokens: Guessed per step; None: as many as pay.
        has_mtp: Whether a draft layer may be loaded.
        grammar_tokens: Most that are taken from a grammar at once.
        grammar_path: File with a grammar that replies are expected to follow.
        mtp_guard_percent: Guesses of the draft layer that must come true, else it rests; 0: any.
        mtp_guard_window: Drafts over which that is looked at.
    """

    source: str = "auto"
    tokens: int | None = None
    has_mtp: bool = True
    grammar_tokens: int = 24
    grammar_path: Path | None = None
    mtp_guard_percent: int = 0
    mtp_guard_window: int = 24


@dataclass(frozen=True, slots=True)
class ReadConfig:
    """How experts that are not in memory are read, and from which disks.

    Args:
        mode: "auto", "io_uring" or "threads".
        depth: Parts that are read from one device at the same time; None: what suits the mode.
        direct: Around the system's cache of files, or through it; None: as measured.
        mirrors: Directories with copies of the weight files.
        weights: Shares of the model's own disk and of each mirror; None: as measured.
        cache: The file that keeps measurements of disks; None: measure at every start.
    """

    mode: str = "auto"
    depth: int | None = None
    direct: bool | None = None
    mirrors: tuple[Path, ...] = ()
    weights: tuple[float, ...] | None = None
    cache: Path | None = None


@dataclass(frozen=True, slots=True)
class HistoryConfig:
    """What is kept of which experts were used.

    Args:
        path: The file; None: `.coli_usage` beside the model.
        is_saved: Read it, and add to it.
        decay: What old counts are multiplied by at each save; None: by as much as is new.
        pins: Keep in memory what it says is used most.
        repin_tokens: Tokens between two exchanges of cold pins; 0: none.
    """

    path: Path | None = None
    is_saved: bool = True
    decay: float | None = None
    pins: bool = True
    repin_tokens: int = 0


@dataclass(frozen=True, slots=True)
class MemoryConfig:
    """How much memory there is for the model, and how what does not fit is read.

    Args:
        ram_bytes: All the engine may take; None: most of what is available.
        cap: Experts of each layer that stay in memory; None: as many as fit.
        may_raise: Keep more than `cap` where they fit: an older gateway named a number.
        reads: How, and from which disks.
        looks_ahead: Read what is likely to be asked for while the disk has nothing else to do.
        history: What is kept of which experts were used.
        guard_bytes: Memory beyond which slots are given back; None: what the engine may take.
    """

    ram_bytes: int | None = None
    cap: int | None = None
    may_raise: bool = True
    reads: ReadConfig = field(default_factory=ReadConfig)
    looks_ahead: bool = True
    history: HistoryConfig = field(default_factory=HistoryConfig)
    guard_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Extensions:
    """What plugins add to the engine, as modules by name.

    Args:
        models: By `model_type`.
        formats: By the name of the number format.
    """

    models: Mapping[str, str] = field(default_factory=dict)
    formats: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Everything an engine process is told.

    Args:
        model_path: Model directory or GGUF file.
        model_dirs: Further directories with weight files of it.
        has_caps: The gateway knows the extended forms of the protocol.
        context_length: Positions per slot.
        is_context_given: Somebody asked for that many.
        num_slots: KV slots.
        numerics: "default", "fast" or "float".
        num_threads: Threads that compute; None: the cores this process may use.
        isa: Forced instruction set, or None.
        prefill_chunk: Prompt rows per step.
        max_tokens: Reply length where a request says nothing.
        temperature: Where a request says nothing; None: the model's own.
        top_p: Likewise.
        seed: Seed of requests that bring none; None: a new one each time.
        experts_per_token: Another number of experts than the model's own, or None.
        drafts: How tokens are guessed ahead.
        memory: What the model may take of it.
        log_level: Name of the least severe level that is logged.
        kv_save: Save conversations, and go on from saved ones.
        kv_dir: Directory of saved conversations; None: beside the model.
        kv_share: Copy rows that two conversations have in common.
        kv_dtype: What rows of conversations are kept as: "f32" or "bf16".
        state_dir: The user's state directory of this program.
        parent_pid: Process to live and die with, if it said so.
        unknown: Variables with our prefix that nobody reads, and the nearest known name.
        foreign: Variables of other engines that are not read here, and what there is instead.
    """

    model_path: Path
    model_dirs: tuple[Path, ...]
    has_caps: bool
    context_length: int
    is_context_given: bool
    num_slots: int
    numerics: str
    num_threads: int | None
    isa: str | None
    prefill_chunk: int
    max_tokens: int
    temperature: float | None
    top_p: float | None
    seed: int | None
    experts_per_token: int | None
    drafts: DraftConfig
    memory: MemoryConfig
    log_level: str
    kv_save: bool
    kv_dir: Path | None
    kv_share: bool
    kv_dtype: str
    state_dir: Path
    parent_pid: int | None
    unknown: Mapping[str, str | None]
    foreign: Mapping[str, str]

    @property
    def step_rows(self) -> int:
        """Rows of the largest step."""
        is_drafting = self.drafts.source != "off" and self.drafts.tokens != 0
        return self.prefill_chunk + self.num_slots + MAX_DRAFTED_ROWS * is_drafting
