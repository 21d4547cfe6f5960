"""`coli info`: a model, this machine and its engine at a glance."""

import json
import sys
from dataclasses import dataclass

from colibri_cli.errors import ModelNotGiven
from colibri_cli.options import EngineOptions, JsonOptions, OutputOptions, takes
from colibri_cli.settings import prepare


@dataclass(frozen=True, kw_only=True)
class InfoOptions(EngineOptions, JsonOptions, OutputOptions):
    """Options of `coli info`."""


@takes(InfoOptions)
def command(options: InfoOptions) -> None:
    """Tell what a model is and what runs it; nothing is loaded."""
    settings = prepare(options, "info")
    wanted = settings.text("model")
    if wanted is None:
        raise ModelNotGiven
    from colibri_cli.model_store.facts import fact_rows, facts_of
    from colibri_cli.model_store.inspection import inspect_model
    from colibri_cli.model_store.store import locate_model

    path, name = locate_model(wanted)
    body = facts_of(path, name, inspect_model(path, settings), settings)
    if options.json:
        sys.stdout.write(json.dumps(body, ensure_ascii=False) + "\n")
        return
    from colibri_cli.console import print_facts

    print_facts(list(fact_rows(body).items()))
