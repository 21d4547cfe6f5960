"""The table of settings: the one source of flags, variables, configuration keys and their page.

A new setting is a row here, and `scripts/docs`. Preferred names start with COLI_; the others keep
working. Rows are ordered as a reader would look for them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from colibri_protocol.draft_settings import DRAFT_ROWS
from colibri_protocol.expert_settings import EXPERT_ROWS
from colibri_protocol.limits import MAX_SLOT
from colibri_protocol.reply_settings import REPLY_ROWS
from colibri_protocol.server_settings import SERVER_ROWS
from colibri_protocol.setting import Kind, Scope, Setting
from colibri_protocol.upstream_settings import UPSTREAM_ROWS

if TYPE_CHECKING:
    from collections.abc import Mapping

# Variables with our prefix that are no settings: marks between processes, the build's own, and
# those about plugins, which are read before there are settings.
INTERNAL_VARIABLES: Final = frozenset(
    {
        "COLI_CONFIG",
        "COLI_LOAD_PLUGINS",
        "COLI_MODEL_MODULES",
        "COLI_PARENT_PID",
        "COLI_QUANT_MODULES",
        "COLI_SERVE_PORT",
        "COLI_STRICT_PLUGINS",
        "COLI_TRACE_PLUGINS",
        "COLI_WERROR",
    }
)

_ROWS: Final = (
    Setting(
        name="model",
        kind=Kind.TEXT,
        scope=Scope.CLI,
        env=("COLI_MODEL",),
        flags=("--model",),
        default_text="none; `coli chat` takes `demo`",
        help="Model: the name of a pulled one, a directory, or a GGUF file.",
    ),
    Setting(
        name="model_path",
        kind=Kind.PATH,
        scope=Scope.ENGINE,
        env=("SNAP", "COLI_MODEL"),
        default_text="none",
        help="Model directory or GGUF file that an engine process loads.",
    ),
    Setting(
        name="ctx",
        kind=Kind.INTEGER,
        scope=Scope.BOTH,
        env=("COLI_CTX", "CTX"),
        flags=("--ctx",),
        default=0,
        default_text="0, which means 4096",
        low=0,
        high=2**31 - 1,
        help="Context per conversation in tokens; a longer prompt is refused, never cut.",
    ),
    Setting(
        name="kv_slots",
        kind=Kind.INTEGER,
        scope=Scope.BOTH,
        env=("COLI_KV_SLOTS", "KV_SLOTS"),
        flags=("--kv-slots",),
        default=1,
        low=1,
        high=MAX_SLOT + 1,
        help="Conversations whose keys and values stay in memory, each with its own context.",
    ),
    Setting(
        name="kv_save",
        kind=Kind.SWITCH,
        scope=Scope.BOTH,
        env=("COLI_KV_SAVE", "KVSAVE"),
        default=True,
        help="Save conversations' keys and values, so that the next start goes on from them.",
    ),
    Setting(
        name="kv_dir",
        kind=Kind.PATH,
        scope=Scope.BOTH,
        env=("COLI_KV_DIR",),
        default_text="beside the model; where that cannot be written, the user's state directory",
        help="Directory of saved conversations (`.coli_kv`, `.coli_kv.1`, …).",
    ),
    Setting(
        name="kv_share",
        kind=Kind.SWITCH,
        scope=Scope.BOTH,
        env=("COLI_KV_SHARE",),
        default=True,
        help="Copy what two conversations have in common instead of computing it again.",
    ),
    Setting(
        name="kv_dtype",
        kind=Kind.CHOICE,
        scope=Scope.BOTH,
        env=("COLI_KV_DTYPE",),
        flags=("--kv-dtype",),
        default="f32",
        choices=("f32", "bf16"),
        help="What conversations' keys and values are kept as: bf16 takes half the memory of f32"
        " and rounds them to 8 bits of precision, which can change answers a little.",
    ),
    *REPLY_ROWS,
    # ---- how it runs ----
    Setting(
        name="numerics",
        kind=Kind.CHOICE,
        scope=Scope.BOTH,
        env=("COLI_NUMERICS",),
        flags=("--numerics",),
        default="default",
        choices=("default", "fast", "float"),
        help="Activations against integer weights: 16 bits, 8 bits (faster, less exact), floats.",
    ),
    Setting(
        name="num_threads",
        kind=Kind.INTEGER,
        scope=Scope.BOTH,
        env=("COLI_NUM_THREADS", "OMP_NUM_THREADS"),
        flags=("--threads",),
        default_text="the physical cores this process may use",
        low=1,
        high=1024,
        help="Threads that compute.",
    ),
    Setting(
        name="isa",
        kind=Kind.CHOICE,
        scope=Scope.ENGINE,
        env=("COLI_ISA",),
        default_text="the best this machine has",
        choices=("scalar", "avx2", "avx512", "amx", "neon", "i8mm"),
        help="Instruction set of the kernels; one the machine lacks is refused.",
    ),
    Setting(
        name="prefill_chunk",
        kind=Kind.INTEGER,
        scope=Scope.BOTH,
        env=("COLI_PREFILL_CHUNK",),
        default=256,
        low=1,
        high=65_536,
        help="Prompt tokens per step; between two steps other requests and STOP are served.",
    ),
    Setting(
        name="experts_per_token",
        kind=Kind.INTEGER,
        scope=Scope.BOTH,
        env=("COLI_EXPERTS_PER_TOKEN", "TOPK"),
        flags=("--expert-topk", "--topk"),
        default=0,
        default_text="0, the model's own",
        low=0,
        high=4096,
        help="Use only this many experts per token. Changes the answers, so it warns.",
    ),
    *DRAFT_ROWS,
    # ---- memory and experts ----
    *EXPERT_ROWS,
    # ---- the engine process ----
    Setting(
        name="engine_bin",
        kind=Kind.PATH,
        scope=Scope.CLI,
        env=("COLI_ENGINE",),
        flags=("--engine-bin",),
        default_text="our own engine",
        help="Another program that speaks the engine protocol.",
    ),
    Setting(
        name="auto_tier",
        kind=Kind.SWITCH,
        scope=Scope.CLI,
        env=("COLI_AUTO_TIER",),
        flags=("--auto-tier",),
        default=False,
        help="Run with the settings of speed that `coli tune` kept for this model and machine.",
    ),
    Setting(
        name="engine_restart",
        kind=Kind.SWITCH,
        scope=Scope.CLI,
        env=("COLI_ENGINE_RESTART",),
        default=True,
        help="Start a new engine process when the running one dies.",
    ),
    Setting(
        name="hang_timeout",
        kind=Kind.NUMBER,
        scope=Scope.CLI,
        env=("COLI_HANG_TIMEOUT",),
        default=0.0,
        default_text="0, never",
        low=0,
        high=1_000_000,
        help="Seconds an engine may leave a heartbeat unanswered before it is ended. It answers"
        " between two steps, so this must be longer than its longest one.",
    ),
    Setting(
        name="caps",
        kind=Kind.SWITCH,
        scope=Scope.ENGINE,
        env=("COLI_CAPS",),
        default=False,
        default_text="0; the command line sets 1",
        help="Whether the engine announces and speaks the extended forms of the protocol.",
    ),
    Setting(
        name="log",
        kind=Kind.CHOICE,
        scope=Scope.BOTH,
        env=("COLI_LOG",),
        default="warning",
        choices=("debug", "info", "warning", "error"),
        help="Least severe messages that are logged to standard error.",
    ),
    # ---- the server ----
    *SERVER_ROWS,
    *UPSTREAM_ROWS,
    # ---- measuring ----
    Setting(
        name="datasets_url",
        kind=Kind.TEXT,
        scope=Scope.CLI,
        env=("COLI_DATASETS_URL",),
        default="https://datasets-server.huggingface.co",
        help="Server with the rows API of the dataset viewer that `coli bench quality` fetches"
        " data sets from which are not here.",
    ),
    Setting(
        name="offline",
        kind=Kind.SWITCH,
        scope=Scope.CLI,
        env=("COLI_OFFLINE", "HF_HUB_OFFLINE"),
        flags=("--offline",),
        default=False,
        help="Let `coli bench quality` fetch no data sets: those that are not here are left out.",
    ),
    # ---- the terminal ----
    Setting(
        name="show_think",
        kind=Kind.SWITCH,
        scope=Scope.CLI,
        env=("COLI_SHOW_THINK",),
        default=True,
        help="Show the reasoning before an answer.",
    ),
    Setting(
        name="raw",
        kind=Kind.SWITCH,
        scope=Scope.CLI,
        env=("COLI_RAW",),
        flags=("--raw",),
        default=False,
        help="Show answers on a terminal as the text they are, not as Markdown.",
    ),
    Setting(
        name="no_log",
        kind=Kind.SWITCH,
        scope=Scope.CLI,
        env=("COLI_NO_LOG",),
        flags=("--no-log",),
        default=False,
        help="Keep no log of conversations.",
    ),
    Setting(
        name="color",
        kind=Kind.SWITCH,
        scope=Scope.CLI,
        env=("COLI_COLOR",),
        default_text="automatic",
        help="Force or forbid colour; `--no-color` and NO_COLOR win.",
    ),
    Setting(
        name="banner",
        kind=Kind.SWITCH,
        scope=Scope.CLI,
        env=("COLI_BANNER",),
        default=True,
        help="Greet with the drawing and the model where a terminal shows a chat or a server.",
    ),
    Setting(
        name="profile",
        kind=Kind.TEXT,
        scope=Scope.CLI,
        env=("COLI_PROFILE",),
        flags=("--profile",),
        default_text="none",
        help="Profile of the configuration: `[profile.NAME]` lies over the rest of its file.",
    ),
    Setting(
        name="theme",
        kind=Kind.CHOICE,
        scope=Scope.CLI,
        env=("COLI_THEME",),
        default="auto",
        choices=("auto", "dark", "light"),
        help="Colours for a terminal with a dark or a light background; `auto` believes COLORFGBG,"
        " where the terminal sets it, and else takes it for dark.",
    ),
    Setting(
        name="debug",
        kind=Kind.INTEGER,
        scope=Scope.CLI,
        env=("COLI_DEBUG",),
        default=0,
        low=0,
        high=2,
        help="1 (`--debug`) shows where in the program an error came from, 2 the protocol too."
        " `coli serve` logs what was answered, with 2 also the prompts: the words of its users.",
    ),
)

SETTINGS: Final[Mapping[str, Setting]] = {row.name: row for row in _ROWS}
