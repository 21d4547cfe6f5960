"""`coli plan`: what of a model goes where on this machine, and how fast that will be."""

import json
import sys
from dataclasses import dataclass
from typing import Annotated, Any

import typer

from colibri_cli.errors import ModelNotGiven, UsageError
from colibri_cli.options import EngineOptions, JsonOptions, OutputOptions, setting, takes
from colibri_cli.settings import prepare
from colibri_protocol.settings import ResolvedSettings

_NOW = "now"
_MAX_CASES = 8


@dataclass(frozen=True, kw_only=True)
class PlanOptions(EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli plan`."""

    name: Annotated[
        str | None,
        typer.Argument(
            metavar="MODEL", help="The same as --model: a name or a path.", show_default=False
        ),
    ] = None
    kv_slots: Annotated[str | None, setting("kv_slots", "Model and engine")] = None
    what_if: Annotated[
        list[str] | None,
        typer.Option(
            "--what-if",
            metavar="NAME=VALUE,…",
            help="One more plan: ram=64 (GB), memory=80 and disk=7 (GB/s), ctx, slots, cap, "
            "threads, chunk, numerics, kv. Repeatable.",
            show_default=False,
        ),
    ] = None
    explain: Annotated[
        bool, typer.Option("--explain", help="Say why things go where they go.", metavar="")
    ] = False
    measure: Annotated[
        bool, typer.Option("--measure", help="Measure this machine again.", metavar="")
    ] = False


@takes(PlanOptions)
def command(options: PlanOptions) -> None:
    """Show where weights would go here, and how fast it would be."""
    settings = prepare(options, "plan")
    from colibri_cli.model_store.store import locate_model
    from colibri_cli.planning.document import document
    from colibri_cli.planning.running import plan_model
    from colibri_cli.planning.what_if import WhatIf

    if options.engine_bin is not None:
        raise UsageError("--engine-bin cannot be planned for", hint="leave it out")
    if options.name is not None and options.model is not None:
        raise UsageError(
            f"two models were named: {options.name} and {options.model}", hint="name one"
        )
    wanted = options.name or settings.text("model")
    if wanted is None:
        raise ModelNotGiven
    asked = options.what_if or []
    if len(asked) > _MAX_CASES:
        raise UsageError(
            f"--what-if was given {len(asked)} times", hint=f"give it at most {_MAX_CASES} times"
        )
    cases = [WhatIf.parse(text) for text in asked]
    path, name = locate_model(wanted)
    report = plan_model(path, settings, cases, renew=options.measure)
    report["model"] = {"name": name, **report["model"]}
    labels = [_NOW, *(case.label for case in cases)]
    for label, plan in zip(labels, report["plans"], strict=True):
        plan["label"] = label
    if options.json:
        body = document(report, path, settings)
        sys.stdout.write(json.dumps(body, ensure_ascii=False, allow_nan=False) + "\n")
        return
    _show(options, report)
    if options.explain:
        _explain(report, settings)


def _show(options: PlanOptions, report: dict[str, Any]) -> None:
    from colibri_cli.console import notice, print_prose, print_table
    from colibri_cli.planning import figures
    from colibri_cli.terminal.tier_bar import print_tier_bar

    plans = report["plans"]
    if not options.quiet:
        print_prose([*figures.heading(report), ""])
    labels = [_NOW, *(_column(plan["label"], len(plans)) for plan in plans[1:])]
    print_table([("", False), *((label, True) for label in labels)], figures.rows(plans))
    for plan in plans:
        tiers = figures.tiers(plan)
        if tiers is not None:
            sys.stdout.write(f"\n{plan['label']}\n" if len(plans) > 1 else "\n")
            sys.stdout.flush()
            print_tier_bar(tiers)
    for plan in plans:
        prefix = f"{plan['label']}: " if len(plans) > 1 else ""
        print_prose([f"{prefix}{line}" for line in figures.remarks(plan)])
        for warning in plan["warnings"]:
            notice(f"{prefix}{warning}", style="warn")


def _explain(report: dict[str, Any], settings: ResolvedSettings) -> None:
    from colibri_cli.console import print_prose
    from colibri_cli.planning.document import decisions, policy

    found = policy(settings)
    kept = "keeps" if found["quality_preserving"] else "does not keep"
    print_prose(["", f"policy: {found['name']}, {kept} what the model would say"])
    print_prose([f"- {line}" for line in decisions(report, settings)])


def _column(label: str, count: int) -> str:
    """Return a title that leaves room for all columns."""
    room = max(12, 60 // count)
    return label if len(label) <= room else label[: room - 1] + "…"
