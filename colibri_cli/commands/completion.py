"""`coli completion SHELL`: the script that lets a shell complete command lines."""

import sys
from dataclasses import dataclass
from typing import Annotated

import typer

from colibri_cli import completing
from colibri_cli.errors import UsageError
from colibri_cli.options import OutputOptions, takes
from colibri_cli.settings import prepare

# As a file in `fpath`, zsh runs the script as the function `_coli` for the first TAB, which is to
# complete at once; sourced, it only says what completes later.
_ZSH_END = "compdef _coli_completion coli"
_ZSH_ENDS = f"""\
if [[ $zsh_eval_context[-1] == (loadautofunc|shfunc) && $funcstack[1] == _coli ]]; then
  _coli_completion "$@"
else
  {_ZSH_END}
fi"""


@dataclass(frozen=True, kw_only=True)
class CompletionOptions(OutputOptions):
    """Options of `coli completion`."""

    shell: Annotated[
        str,
        typer.Argument(
            metavar="SHELL",
            help=f"One of {', '.join(completing.SHELLS)}.",
            autocompletion=completing.shell_names,
        ),
    ]


@takes(CompletionOptions)
def command(options: CompletionOptions) -> None:
    """Print the completion script of a shell."""
    prepare(options, "completion")
    if options.shell not in completing.SHELLS:
        raise UsageError(
            f"there is no script for {options.shell!r}",
            hint=f"name one of {', '.join(completing.SHELLS)}",
        )
    from typer._completion_shared import get_completion_script

    script = get_completion_script(
        prog_name="coli", complete_var="_COLI_COMPLETE", shell=options.shell
    )
    if options.shell == "zsh":
        script = script.replace(_ZSH_END, _ZSH_ENDS)
    sys.stdout.write(script.strip() + "\n")
