"""`coli convert`: a checkpoint becomes a container whose experts are read with one read each."""

import json
import sys
from dataclasses import dataclass, fields
from typing import Annotated, Any

import typer

from colibri_cli.errors import UsageError
from colibri_cli.options import JsonOptions, OutputOptions, filled, path_of, setting, takes
from colibri_cli.settings import prepare

_SCHEMA_VERSION = 1
_PRECISION = "Precision"
_PLACE = "Place and size"
_LAYOUTS = ("stream", "pairs")


def _bits(flag: str, what: str, default: str) -> Any:  # noqa: ANN401 - Typer's own option object
    return typer.Option(
        flag,
        metavar="BITS",
        help=f"{what}. Default: {default}.",
        show_default=False,
        rich_help_panel=_PRECISION,
    )


_LIKE_EBITS = "as --ebits"
_LIKE_XBITS = "as --xbits"


@dataclass(frozen=True, kw_only=True)
class PrecisionOptions:
    """How exactly weights are stored."""

    ebits: Annotated[
        str | None,
        _bits("--ebits", "Matrices of the layers: 2 to 8, 16, `keep` or `fp8`", "4, or as it is"),
    ] = None
    io_bits: Annotated[str | None, _bits("--io-bits", "Embedding and head", "8")] = None
    xbits: Annotated[str | None, _bits("--xbits", "Routed experts; also `e8`", _LIKE_EBITS)] = None
    gate_bits: Annotated[str | None, _bits("--gate-bits", "Their gates", _LIKE_XBITS)] = None
    up_bits: Annotated[str | None, _bits("--up-bits", "Their up matrices", _LIKE_XBITS)] = None
    down_bits: Annotated[str | None, _bits("--down-bits", "Their down matrices", _LIKE_XBITS)] = (
        None
    )
    shared_bits: Annotated[str | None, _bits("--shared-bits", "Shared experts", _LIKE_EBITS)] = None
    o_bits: Annotated[str | None, _bits("--o-bits", "Outputs of attention", _LIKE_EBITS)] = None
    kvb_bits: Annotated[
        str | None, _bits("--kvb-bits", "kv_b of latent attention", _LIKE_EBITS)
    ] = None
    attn_bits: Annotated[
        str | None, _bits("--attn-bits", "Other matrices of attention", _LIKE_EBITS)
    ] = None
    dmlp_bits: Annotated[
        str | None, _bits("--dmlp-bits", "Dense feed-forward blocks", _LIKE_EBITS)
    ] = None
    mtp_bits: Annotated[str | None, _bits("--mtp-bits", "Draft layers", "8")] = None
    group_size: Annotated[
        int | None,
        typer.Option(
            "--group-size",
            metavar="N",
            help="Inputs per scale of 4-bit matrices; 0 is one scale per row. Default: 64.",
            show_default=False,
            rich_help_panel=_PRECISION,
        ),
    ] = None


@dataclass(frozen=True, kw_only=True)
class ConvertOptions(PrecisionOptions, JsonOptions, OutputOptions):
    """Options of `coli convert`."""

    source: Annotated[
        str | None,
        typer.Argument(
            metavar="SOURCE",
            help="A model directory, a .gguf file, the name of a pulled model, or `hf:ORG/NAME`.",
            show_default=False,
        ),
    ] = None
    source_dir: Annotated[
        str | None,
        typer.Option(
            "--from", "--indir", metavar="DIR", help="The same as SOURCE.", show_default=False
        ),
    ] = None
    repo: Annotated[
        str | None,
        typer.Option(
            "--repo", metavar="ORG/NAME", help="The same as hf:ORG/NAME.", show_default=False
        ),
    ] = None
    out: Annotated[
        str,
        typer.Option(
            "--model",
            "--out",
            "--outdir",
            metavar="DIR",
            help="Directory of the result.",
            show_default=False,
        ),
    ]
    revision: Annotated[
        str | None,
        typer.Option("--revision", help="Branch, tag or commit (hf: only).", show_default=False),
    ] = None
    layout: Annotated[
        str,
        typer.Option(
            "--layout",
            metavar="|".join(_LAYOUTS),
            help="`stream`: one read per expert. `pairs`: what older engines read.",
        ),
    ] = "stream"
    no_mtp: Annotated[
        bool, typer.Option("--no-mtp", help="Leave the draft layers out.", metavar="")
    ] = False
    shard_gb: Annotated[
        float | None,
        typer.Option(
            "--shard-gb",
            metavar="GB",
            help="About the size of one file. Default: 5.",
            show_default=False,
            rich_help_panel=_PLACE,
        ),
    ] = None
    min_free_gb: Annotated[
        float | None,
        typer.Option(
            "--min-free-gb",
            metavar="GB",
            help="Stop before less than this is free. Default: 1.",
            show_default=False,
            rich_help_panel=_PLACE,
        ),
    ] = None
    num_threads: Annotated[str | None, setting("num_threads", _PLACE)] = None
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Print the plan and its sizes only.", metavar="")
    ] = False
    verify: Annotated[
        bool, typer.Option("--verify", help="Read the whole result once more.", metavar="")
    ] = False


@takes(ConvertOptions)
def command(options: ConvertOptions) -> None:
    """Convert a model into a container: one read per expert."""
    settings = prepare(options, "convert")
    from colibri_cli.console import notice
    from colibri_cli.model_store.converting import ConvertRequest, convert_model
    from colibri_cli.termination import Terminated

    arguments = _job_arguments(options)
    threads = settings.integer("num_threads")
    if threads is not None:
        arguments["threads"] = str(threads)
    request = ConvertRequest(
        source=_source(options),
        out=path_of("--model", options.out),
        arguments=arguments,
        dry_run=options.dry_run,
        revision=options.revision,
    )
    plans: list[dict[str, Any]] = []

    def show(plan: dict[str, Any]) -> None:
        plans.append(plan)
        if not options.json and not options.quiet:
            _print_plan(plan)

    try:
        convert_model(request, show)
    except (KeyboardInterrupt, Terminated):
        if plans and not options.dry_run and not options.quiet:
            notice(f"stopped: finished files are kept in {request.out}; the same command goes on")
        raise
    if options.json:
        body = {
            "schema_version": _SCHEMA_VERSION,
            "path": str(request.out),
            "converted": not options.dry_run,
            "plan": plans[0],
        }
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
    elif not options.dry_run:
        sys.stdout.write(f"{request.out}\n")


def _source(options: ConvertOptions) -> str:
    """Return the one source that was named.

    Raises:
        UsageError: none was, or several.
    """
    named = {"SOURCE": options.source, "--from": options.source_dir, "--repo": options.repo}
    given = [(flag, name) for flag, name in named.items() if name is not None]
    if len(given) != 1:
        names = ", ".join(name for _, name in given)
        raise UsageError(
            f"several sources were named: {names}" if given else "no source was named",
            hint="name one: SOURCE, --from DIR or --repo ORG/NAME",
        )
    flag, name = given[0]
    filled(flag, name, what="a model")
    return name if flag != "--repo" else f"hf:{name.removeprefix('hf:')}"


def _job_arguments(options: ConvertOptions) -> dict[str, str | None]:
    """Return what was given, as arguments of the job."""
    if options.layout not in _LAYOUTS:
        raise UsageError(
            f"--layout {options.layout!r} is none", hint=f"give one of {', '.join(_LAYOUTS)}"
        )
    names = [entry.name for entry in fields(PrecisionOptions)]
    given: dict[str, str | None] = {
        name.replace("_", "-"): str(value)
        for name in names
        if (value := getattr(options, name)) is not None
    }
    given["layout"] = options.layout
    if options.shard_gb is not None:
        given["shard-bytes"] = str(_bytes("--shard-gb", options.shard_gb, low=100_000))
    if options.min_free_gb is not None:
        given["min-free-bytes"] = str(_bytes("--min-free-gb", options.min_free_gb, low=0))
    switches = {"no-mtp": options.no_mtp, "verify": options.verify}
    given.update({name: None for name, is_on in switches.items() if is_on})
    return given


def _bytes(flag: str, gigabytes: float, *, low: int) -> int:
    if not low / 1e9 <= gigabytes <= 1e6:
        raise UsageError(
            f"{flag} {gigabytes:g} is not possible", hint=f"give {low / 1e9:g} to 1000000"
        )
    return round(gigabytes * 1e9)


def _print_plan(plan: dict[str, Any]) -> None:
    from colibri_cli.console import notice, print_table

    columns = [("class", False), ("format", False), ("inputs per scale", True)]
    columns += [("tensors", True), ("size", True)]
    rows = [
        [
            row["class"],
            f"{row['format']}, kept" if row["kept"] else row["format"],
            _group_text(row),
            str(row["tensors"]),
            _size(row["bytes"]),
        ]
        for row in plan["classes"]
    ]
    print_table(columns, rows)
    sys.stdout.write(
        f"{_size(plan['source_bytes'])} become {_size(plan['result_bytes'])} in {plan['files']} "
        f"file{'' if plan['files'] == 1 else 's'}, layout {plan['layout']}\n"
    )
    if plan["left_out"]:
        names = plan["left_out"]
        more = f" and {len(names) - 3} more" if len(names) > 3 else ""
        sys.stdout.write(f"left out: {', '.join(names[:3])}{more}\n")
    for warning in plan["warnings"]:
        notice(warning, style="warn")


def _group_text(row: dict[str, Any]) -> str:
    if row["group_size"] is not None:
        return str(row["group_size"])
    return "row" if row["format"].startswith("int") else ""


def _size(num_bytes: int) -> str:
    return f"{num_bytes / 1e9:.2f} GB" if num_bytes >= 1e9 else f"{num_bytes / 1e6:.2f} MB"
