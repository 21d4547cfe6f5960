"""Rows of the settings table for servers that stand before another server; `settings_table`."""

from __future__ import annotations

from typing import Final

from colibri_protocol.setting import Kind, Scope, Setting

_MAX_DEVICES: Final = 4096

UPSTREAM_ROWS: Final = (
    Setting(
        name="upstream",
        kind=Kind.TEXT,
        scope=Scope.CLI,
        env=("COLI_UPSTREAM",),
        flags=("--upstream",),
        default_text="none",
        help="URL of a server of the OpenAI API that answers instead of an engine of ours.",
    ),
    Setting(
        name="upstream_api_key",
        kind=Kind.TEXT,
        scope=Scope.CLI,
        env=("COLI_UPSTREAM_API_KEY",),
        default_text="none",
        help="Key that is shown to that server.",
    ),
    Setting(
        name="upstream_kind",
        kind=Kind.CHOICE,
        scope=Scope.CLI,
        env=("COLI_UPSTREAM_KIND",),
        flags=("--upstream-kind",),
        default="auto",
        choices=("auto", "coli", "vllm", "sglang", "llama-server", "openai"),
        help="What that server is, which decides what can be asked of it; `auto` goes by the owner"
        " of its models.",
    ),
    Setting(
        name="concurrency",
        kind=Kind.INTEGER,
        scope=Scope.CLI,
        env=("COLI_CONCURRENCY",),
        flags=("--concurrency",),
        default=256,
        low=1,
        high=1_000_000,
        help="Requests that are with that server at once; more wait here.",
    ),
    Setting(
        name="engine_kind",
        kind=Kind.CHOICE,
        scope=Scope.CLI,
        env=("COLI_ENGINE_KIND",),
        flags=("--engine",),
        default="native",
        choices=("native", "vllm"),
        help="What runs the model: our engine, or `vllm serve` of the environment, which is then"
        " started and watched.",
    ),
    Setting(
        name="tensor_parallel",
        kind=Kind.INTEGER,
        scope=Scope.CLI,
        env=("COLI_TENSOR_PARALLEL",),
        flags=("--tensor-parallel",),
        default=1,
        low=1,
        high=_MAX_DEVICES,
        help="With --engine vllm: GPUs that share each layer.",
    ),
    Setting(
        name="pipeline_parallel",
        kind=Kind.INTEGER,
        scope=Scope.CLI,
        env=("COLI_PIPELINE_PARALLEL",),
        flags=("--pipeline-parallel",),
        default=1,
        low=1,
        high=_MAX_DEVICES,
        help="With --engine vllm: groups of GPUs that have a part of the layers each.",
    ),
    Setting(
        name="nodes",
        kind=Kind.INTEGER,
        scope=Scope.CLI,
        env=("COLI_NODES",),
        flags=("--nodes",),
        default=1,
        low=1,
        high=_MAX_DEVICES,
        help="With --engine vllm: machines of the running Ray cluster that the GPUs are on.",
    ),
    Setting(
        name="engine_args",
        kind=Kind.TEXT,
        scope=Scope.CLI,
        env=("COLI_ENGINE_ARGS",),
        flags=("--engine-args",),
        default_text="none",
        help="With --engine vllm: further arguments of `vllm serve`, quoted as in a shell.",
    ),
    Setting(
        name="key_limits",
        kind=Kind.TEXT,
        scope=Scope.CLI,
        env=("COLI_KEY_LIMITS",),
        flags=("--key-limit",),
        default_text="none",
        help="What a key may take: NAME:running=N,queued=N,priority=N,tokens_per_minute=N, each"
        " part optional, `*` for keys not named; repeat the flag, or separate with semicolons.",
    ),
)
