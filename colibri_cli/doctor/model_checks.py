"""Checks of one model: its files, and whether this machine can load it."""

from __future__ import annotations

import os
import re
import shutil
from typing import TYPE_CHECKING, Final

from colibri_cli.doctor.examination import failed, passed, skipped, warned
from colibri_cli.model_store.drive_probe import NAME, drive_probe
from colibri_cli.planning.running import plan_model, rates_file
from colibri_cli.terminal.sizes import size
from colibri_protocol.errors import ColibriError

if TYPE_CHECKING:
    from colibri_cli.doctor.examination import Check, Examination
    from colibri_cli.plugin_types import CheckResult

_LITTLE: Final = 1_000_000_000
_NO_PROBE: Final = {
    "absent": "not measured yet",
    "legacy": f"{NAME} does not say which drive was measured",
    "foreign": "measured on another drive",
    "garbage": f"{NAME} holds no measurement",
}
_NUMBERED: Final = re.compile(r"(.*)-([0-9]{5})-of-([0-9]{5})(\.safetensors|\.gguf)")
_INVALID: Final = "the model cannot be read"


def check_path(exam: Examination) -> CheckResult:
    """The model exists and may be read."""
    if exam.path is None:
        return failed(f"there is no model {exam.wanted!r}")
    if not os.access(exam.path, os.R_OK):
        return failed(f"{exam.path} may not be read: check its permissions")
    return passed(str(exam.path))


def check_config(exam: Examination) -> CheckResult:
    """Its configuration is one this version implements."""
    if exam.path is None:
        return failed("there is no model to read it from")
    if exam.config_problem is not None:
        return failed(exam.config_problem)
    found = exam.inspection.stages.get("config")
    if found is None:
        return failed(exam.inspection.why_not("config"))
    experts = found["num_experts"]
    mixture = f", {experts} experts per layer" if experts else ", dense"
    return passed(f"{found['model_type']}, {found['num_layers']} layers{mixture}", **found)


def check_tokenizer(exam: Examination) -> CheckResult:
    """Its tokenizer can be built."""
    if exam.path is None:
        return failed("there is no model to read it from")
    found = exam.inspection.stages.get("tokenizer")
    if found is None:
        return failed(exam.inspection.why_not("tokenizer"))
    if not found["end_tokens"]:
        return warned("no end token is named: replies end at their length limit only")
    return passed(f"{found['special_tokens']} special tokens")


def check_persistence(exam: Examination) -> CheckResult:
    """Conversations and the expert history can be kept beside the model."""
    if exam.folder is None:
        return skipped("there is no model")
    if os.access(exam.folder, os.W_OK):
        return passed("files can be kept beside the model")
    return warned(f"{exam.folder} is read-only: nothing is kept beside the model")


def check_shards(exam: Examination) -> CheckResult:
    """The headers of all weight files can be read."""
    if exam.path is None:
        return failed("there is no model")
    files = exam.inspection.get("files", "files")
    if files is None:
        return failed(exam.inspection.why_not("files"))
    total = size(exam.inspection.get("files", "bytes"))
    return passed(f"{len(files)} file{'s' * (len(files) != 1)}, {total}")


def check_disk(exam: Examination) -> CheckResult:
    """There is room beside the model."""
    if exam.folder is None or "files" not in exam.inspection.stages:
        return skipped(_INVALID)
    free = shutil.disk_usage(exam.folder).free
    text = f"{size(free)} free"
    return passed(text, free_bytes=free) if free >= _LITTLE else warned(text, free_bytes=free)


def check_memory(exam: Examination) -> CheckResult:
    """Weights, conversations and steps fit into the memory that is free."""
    if "files" not in exam.inspection.stages:
        return skipped(_INVALID)
    found = exam.inspection.stages.get("memory")
    if found is None:
        return failed(exam.inspection.why_not("memory"))
    needed = size(exam.inspection.get("files", "bytes"))
    available = size(found["available_bytes"])
    if found["excess"] is not None:
        return warned(f"{found['excess']}; take a shorter --ctx or fewer --kv-slots", **found)
    how = "; experts are read as they are needed" if found["is_streamed"] else ""
    return passed(f"weights of {needed}, {available} of memory available{how}", **found)


def check_plan(exam: Examination) -> CheckResult:
    """The placement of weights and experts has no drawback worth a warning."""
    if exam.path is None or "memory" not in exam.inspection.stages:
        return skipped(_INVALID)
    if not rates_file().is_file():
        return skipped("`coli plan` has not measured this machine yet")
    try:
        plan = plan_model(exam.path, exam.context.settings, (), renew=False)["plans"][0]
    except ColibriError as error:
        return skipped(error.message)
    details = {"mode": plan["mode"], "warnings": plan["warnings"]}
    if plan["warnings"]:
        return warned("; ".join(plan["warnings"]), **details)
    how = "everything in memory" if plan["mode"] == "resident" else "experts read as needed"
    return passed(how, **details)


def check_probe(exam: Examination) -> CheckResult:
    """The speed of the model's drive was measured."""
    if exam.folder is None:
        return skipped("there is no model")
    probe = drive_probe(exam.folder)
    if probe.gb_per_s is None:
        return skipped(_NO_PROBE[probe.state])
    return passed(f"{probe.gb_per_s:g} GB/s", gb_per_s=probe.gb_per_s)


def check_container(exam: Examination) -> CheckResult:
    """Every tensor has a shape and a number format that can be read."""
    if "files" not in exam.inspection.stages:
        return skipped(_INVALID)
    found = exam.inspection.stages.get("tensors")
    if found is None:
        return failed(exam.inspection.why_not("tensors"))
    formats = ", ".join(f"{count} {name}" for name, count in found["formats"].items())
    return passed(f"{found['num_tensors']} tensors: {formats}", formats=found["formats"])


def check_sequence(exam: Examination) -> CheckResult:
    """Files that are numbered are all there, once, in one numbering."""
    if exam.folder is None or exam.path is None or not exam.path.is_dir():
        return skipped("no folder of files")
    names = [f.name for f in exam.folder.iterdir() if f.suffix in {".safetensors", ".gguf"}]
    numbered = [match for name in names if (match := _NUMBERED.fullmatch(name))]
    if not numbered:
        return skipped("no numbered files")
    schemes = {(match[1], match[3]) for match in numbered}
    if len(schemes) > 1:
        text = ", ".join(f"{base}-…-of-{total}" for base, total in sorted(schemes))
        return failed(f"files of several numberings: {text}")
    total = int(numbered[0][3])
    missing = sorted(set(range(1, total + 1)) - {int(match[2]) for match in numbered})
    if missing:
        listed = ", ".join(map(str, missing[:8]))
        return failed(f"{len(missing)} of {total} files are missing: {listed}", missing=missing)
    return passed(f"all {total} files")


def check_required(exam: Examination) -> CheckResult:
    """Embeddings, norm, head, layers and experts are complete."""
    if "tensors" not in exam.inspection.stages:
        return skipped(_INVALID)
    found = exam.inspection.stages["tensors"]
    if found["num_missing"]:
        more = found["num_missing"] - len(found["missing"])
        rest = f" and {more} more" if more else ""
        return failed(f"missing: {', '.join(found['missing'])}{rest}", missing=found["missing"])
    return passed("embeddings, final norm, head and all layers")


def check_index(exam: Examination) -> CheckResult:
    """The index names the files that are there, and no others."""
    import json

    if exam.folder is None:
        return skipped("there is no model")
    path = exam.folder / "model.safetensors.index.json"
    try:
        weights = json.loads(path.read_text(encoding="utf-8"))["weight_map"]
        named = {str(value) for value in weights.values()}
    except FileNotFoundError:
        return skipped("there is none")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return failed(f"{path.name} cannot be read: {type(error).__name__}")
    present = {file.name for file in exam.folder.glob("*.safetensors")}
    if gone := sorted(named - present):
        return failed(f"{path.name} names files that are missing: {', '.join(gone[:4])}")
    if extra := sorted(present - named):
        return warned(f"files that {path.name} does not name: {', '.join(extra[:4])}")
    return passed(f"{len(weights)} tensors in {len(named)} files")


MODEL_CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("model.path", check_path),
    ("model.config", check_config),
    ("model.tokenizer", check_tokenizer),
    ("storage.persistence", check_persistence),
)
WEIGHT_CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("model.shards", check_shards),
    ("model.container", check_container),
    ("model.required", check_required),
    ("storage.disk", check_disk),
    ("memory.ram", check_memory),
    ("placement.plan", check_plan),
    ("storage.ssd_probe", check_probe),
)
DEEP_CHECKS: Final[tuple[tuple[str, Check], ...]] = (
    ("model.shard_sequence", check_sequence),
    ("model.index", check_index),
)
