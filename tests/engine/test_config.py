"""What an engine process is told, and the exit code of what it cannot use."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from colibri_engine.config import read_config, wants_caps
from colibri_engine.engine_config import (
    DraftConfig,
    EngineConfig,
    HistoryConfig,
    MemoryConfig,
    ReadConfig,
)
from colibri_engine.errors import (
    EXIT_FAILURE,
    EXIT_MODEL,
    EXIT_SETTINGS,
    BadOption,
    CheckpointError,
    InsufficientMemory,
    KernelUnavailable,
    NoModel,
    SettingsError,
    UnsupportedModel,
    UnsupportedQuantFormat,
    exit_code,
)
from colibri_protocol.settings import Scope, settings_of

DISKS = Path.home() / ".local/state/colibri/disks.json"


def read(**environ: str) -> EngineConfig:
    return read_config((), {"SNAP": "/models/m", **environ})


def test_the_defaults() -> None:
    config = read()
    assert config == EngineConfig(
        model_path=Path("/models/m"), has_caps=False, context_length=4096,
        is_context_given=False, num_slots=1,
        numerics="default", num_threads=None, isa=None, prefill_chunk=256, max_tokens=256,
        temperature=None, top_p=None, seed=None, experts_per_token=None, drafts=DraftConfig(),
        log_level="WARNING", kv_save=True, kv_dir=None, kv_share=True, kv_dtype="f32",
        state_dir=Path.home() / ".local/state/colibri", parent_pid=None, unknown={}, foreign={},
        model_dirs=(), memory=MemoryConfig(reads=ReadConfig(cache=DISKS)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("COLI_CAPS", "1", "has_caps", True),
        ("COLI_CTX", "0", "context_length", 4096),
        ("COLI_CTX", "100", "context_length", 100),
        ("CTX", "777", "context_length", 777),
        ("COLI_CTX", "4096", "is_context_given", True),
        ("COLI_CTX", "0", "is_context_given", False),
        ("COLI_KV_SLOTS", "16", "num_slots", 16),
        ("KV_SLOTS", "4", "num_slots", 4),
        ("COLI_NUMERICS", "fast", "numerics", "fast"),
        ("COLI_NUM_THREADS", "3", "num_threads", 3),
        ("OMP_NUM_THREADS", "2", "num_threads", 2),
        ("COLI_ISA", "scalar", "isa", "scalar"),
        ("COLI_PREFILL_CHUNK", "1", "prefill_chunk", 1),
        ("NGEN", "64", "max_tokens", 64),
        ("COLI_TEMP", "0", "temperature", 0.0),
        ("NUCLEUS", "0.5", "top_p", 0.5),
        ("SEED", "7", "seed", 7),
        ("COLI_SEED", str(2**64 - 1), "seed", 2**64 - 1),
        ("COLI_EXPERTS_PER_TOKEN", "2", "experts_per_token", 2),
        ("COLI_EXPERTS_PER_TOKEN", "0", "experts_per_token", None),
        ("COLI_LOG", "debug", "log_level", "DEBUG"),
        ("COLI_KV_SAVE", "0", "kv_save", False),
        ("KVSAVE", "0", "kv_save", False),
        ("COLI_KV_DIR", "/saved", "kv_dir", Path("/saved")),
        ("COLI_KV_SHARE", "0", "kv_share", False),
        ("COLI_KV_DTYPE", "bf16", "kv_dtype", "bf16"),
        ("COLI_MODEL_DIRS", "/a", "model_dirs", (Path("/a"),)),
        ("COLI_MODEL_DIRS", "/a; /b,/c;", "model_dirs", (Path("/a"), Path("/b"), Path("/c"))),
        ("XDG_STATE_HOME", "/state", "state_dir", Path("/state/colibri")),
    ],
)
def test_every_variable_takes_effect(name: str, text: str, field: str, value: object) -> None:
    assert getattr(read(**{name: text}), field) == value


def test_a_directory_may_have_the_marks_of_a_list_in_its_name(tmp_path: Path) -> None:
    odd = tmp_path / "a,b;c"
    odd.mkdir()
    text = os.pathsep.join([str(odd), "/d"])
    assert read(COLI_MODEL_DIRS=text).model_dirs == (odd, Path("/d"))


@pytest.mark.parametrize(
    ("name", "text", "mode", "depth"),
    [
        ("COLI_READ_MODE", "threads", "threads", None),
        ("URING", "1", "io_uring", None),
        ("URING", "0", "threads", None),
        ("PIPE_WORKERS", "6", "auto", 6),
    ],
)
def test_how_experts_are_read_has_older_names(
    name: str, text: str, mode: str, depth: int | None
) -> None:
    reads = read(**{name: text}).memory.reads
    assert (reads.mode, reads.depth) == (mode, depth)


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("COLI_DRAFT", "ngram", DraftConfig(source="ngram")),
        ("COLI_DRAFT", "off", DraftConfig(source="off")),
        ("COLI_DRAFT_TOKENS", "3", DraftConfig(tokens=3)),
        ("DRAFT", "0", DraftConfig(tokens=0)),
        ("DRAFT", "-1", DraftConfig(tokens=None)),
        ("MTP", "0", DraftConfig(has_mtp=False)),
        ("GRAMMAR_DRAFT", "0", DraftConfig(grammar_tokens=0)),
        ("GRAMMAR", "/a.gbnf", DraftConfig(grammar_path=Path("/a.gbnf"))),
        ("SCHEMA", "/a.json", DraftConfig(grammar_path=Path("/a.json"))),
        ("COLI_MTP_GUARD_PCT", "70", DraftConfig(mtp_guard_percent=70)),
        ("COLI_MTP_GUARD_WINDOW", "8", DraftConfig(mtp_guard_window=8)),
    ],
)
def test_drafts_are_configured(name: str, text: str, expected: DraftConfig) -> None:
    assert read(**{name: text}).drafts == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("COLI_RAM_GB", "6.5", MemoryConfig(ram_bytes=6_500_000_000)),
        ("RAM_GB", "0", MemoryConfig()),
        ("COLI_CAP", "3", MemoryConfig(cap=3, may_raise=False)),
        ("CAP", "0", MemoryConfig()),
        ("PILOT", "0", MemoryConfig(looks_ahead=False)),
        ("RSS_GUARD_GB", "5", MemoryConfig(guard_bytes=5_000_000_000)),
        ("COLI_USAGE", "/m/h", MemoryConfig(history=HistoryConfig(path=Path("/m/h")))),
        ("USAGE_SAVE", "0", MemoryConfig(history=HistoryConfig(is_saved=False))),
        ("COLI_USAGE_DECAY", "0.5", MemoryConfig(history=HistoryConfig(decay=0.5))),
        ("AUTOPIN", "0", MemoryConfig(history=HistoryConfig(pins=False))),
        ("REPIN", "64", MemoryConfig(history=HistoryConfig(repin_tokens=64))),
    ],
)
def test_memory_is_configured(name: str, text: str, expected: MemoryConfig) -> None:
    assert replace(read(**{name: text}).memory, reads=ReadConfig()) == expected


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("DIRECT", "0", ReadConfig(direct=False)),
        ("COLI_DIRECT", "1", ReadConfig(direct=True)),
        ("COLI_READ_MODE", "threads", ReadConfig(mode="threads")),
        ("COLI_READ_DEPTH", "4", ReadConfig(depth=4)),
        ("COLI_MODEL_MIRROR", "/a", ReadConfig(mirrors=(Path("/a"),))),
        (
            "COLI_MODEL_MIRROR",
            os.pathsep.join(("/a", " ", "b/c")),
            ReadConfig(mirrors=(Path("/a"), Path.cwd() / "b/c")),
        ),
        ("COLI_DISK_WEIGHTS", "3", ReadConfig(weights=(3.0,))),
    ],
)
def test_reads_are_configured(name: str, text: str, expected: ReadConfig) -> None:
    assert read(**{name: text}).memory.reads == replace(expected, cache=DISKS)


def test_one_weight_for_each_disk() -> None:
    mirrors = os.pathsep.join(("/a", "/b"))
    config = read(COLI_MODEL_MIRROR=mirrors, COLI_DISK_WEIGHTS="1, 2.5,0")
    assert config.memory.reads.weights == (1.0, 2.5, 0.0)
    for text in ("1,2", "1,2,3,4", "0,0,0", "1,x,2", "1,-1,2", "1,inf,1", "1,nan,1"):
        with pytest.raises(SettingsError, match=r"COLI_DISK_WEIGHTS.*2 mirrors"):
            read(COLI_MODEL_MIRROR=mirrors, COLI_DISK_WEIGHTS=text)


def test_every_engine_setting_is_read() -> None:
    # a row nobody reads would be a setting that is silently ignored
    fields = {"model_path", "caps", "ctx", "kv_slots", "numerics", "num_threads", "isa"}
    fields |= {"prefill_chunk", "max_tokens", "temperature", "top_p", "seed", "log"}
    fields |= {"experts_per_token", "draft", "draft_tokens", "mtp", "grammar_draft"}
    fields |= {"mtp_guard_pct", "mtp_guard_window", "draft_grammar"}
    fields |= {"kv_save", "kv_dir", "kv_share", "kv_dtype"}
    fields |= {"ram_gb", "cap", "direct", "read_mode", "read_depth", "lookahead"}
    fields |= {"usage", "usage_save", "usage_decay", "autopin", "repin", "rss_guard_gb"}
    fields |= {"model_dirs", "model_mirror", "disk_weights"}
    assert set(settings_of(Scope.ENGINE)) == fields


def test_the_preferred_name_wins() -> None:
    assert read(COLI_CTX="100", CTX="200").context_length == 100


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("COLI_KV_SLOTS", "0"), ("COLI_KV_SLOTS", "17"), ("COLI_CTX", "-1"), ("COLI_CTX", "2"),
        ("COLI_CTX", "lots"), ("COLI_TEMP", "/tmp"), ("COLI_TEMP", "nan"), ("NUCLEUS", "0"),
        ("COLI_NUMERICS", "exact"), ("COLI_ISA", "mmx"), ("COLI_PREFILL_CHUNK", "0"),
        ("SEED", "-1"), ("COLI_CAPS", "maybe"), ("COLI_LOG", "loud"),
        ("COLI_RAM_GB", "-1"), ("COLI_CAP", "-1"), ("COLI_READ_MODE", "mmap"),
        ("URING", "2"), ("URING", "io_uring"), ("PIPE_WORKERS", "0"),
        ("COLI_READ_DEPTH", "0"), ("COLI_DIRECT", "2"),
        ("COLI_DRAFT", "yes"), ("COLI_DRAFT_TOKENS", "65"), ("GRAMMAR_DRAFT", "49"),
    ],
)  # fmt: skip
def test_a_value_that_cannot_be_used_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(SettingsError, match=name) as caught:
        read(**{name: text})
    assert exit_code(caught.value) == EXIT_SETTINGS
    assert caught.value.hint


def test_a_temperature_is_never_read_from_a_directory_variable() -> None:
    assert read(TEMP="/tmp").temperature is None


def test_no_model_names_the_variables_and_makes_up_no_path() -> None:
    with pytest.raises(NoModel, match="no model folder was given") as caught:
        read_config((), {})
    assert "SNAP" in str(caught.value.hint)
    assert "COLI_MODEL" in str(caught.value.hint)
    assert exit_code(caught.value) == EXIT_MODEL


def test_the_cache_size_of_older_gateways_is_the_least_they_want() -> None:
    def memory(word: str, **environ: str) -> MemoryConfig:
        config = read_config((word,), {"SNAP": "/m", **environ})
        return replace(config.memory, reads=ReadConfig())

    assert memory("8") == MemoryConfig(cap=8, may_raise=True)
    assert memory("0") == MemoryConfig()
    assert memory("8", COLI_CAP="3") == MemoryConfig(cap=3, may_raise=False)


@pytest.mark.parametrize("argv", [("-1",), ("many",), ("1", "2"), ("--help",), ("٣",)])
def test_other_arguments_are_refused(argv: tuple[str, ...]) -> None:
    with pytest.raises(SettingsError, match="arguments") as caught:
        read_config(argv, {"SNAP": "/m"})
    assert exit_code(caught.value) == EXIT_SETTINGS


def test_a_parent_counts_only_if_it_is_ours() -> None:
    assert read(COLI_PARENT_PID=str(os.getppid())).parent_pid == os.getppid()
    assert read(COLI_PARENT_PID="1234567").parent_pid is None
    assert read(COLI_PARENT_PID="nobody").parent_pid is None


def test_unknown_names_are_kept_for_a_warning() -> None:
    assert read(COLI_NUM_THREAD="2").unknown == {"COLI_NUM_THREAD": "COLI_NUM_THREADS"}


def test_variables_of_other_engines_are_kept_for_a_warning() -> None:
    assert list(read(COLI_MMAP="1", COLI_NUMA="0").foreign) == ["COLI_MMAP"]


@pytest.mark.parametrize(("text", "wanted"), [("1", True), ("on", True), ("0", False), ("", False)])
def test_whether_failures_may_be_told_is_known_without_a_configuration(
    text: str, wanted: bool
) -> None:
    assert wants_caps({"COLI_CAPS": text}) is wanted


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (UnsupportedModel("x"), EXIT_MODEL),
        (UnsupportedQuantFormat("x"), EXIT_MODEL),
        (CheckpointError("x", path="p"), EXIT_MODEL),
        (InsufficientMemory("x"), EXIT_MODEL),
        (KernelUnavailable("avx2"), EXIT_SETTINGS),
        (BadOption("x", "y"), EXIT_SETTINGS),
        (RuntimeError("x"), EXIT_FAILURE),
    ],
)
def test_exit_codes(error: Exception, code: int) -> None:
    assert exit_code(error) == code
