"""`coli serve`: one model for editors, agents and SDKs, over the APIs they already speak."""

from colibri_cli.launch import ServeOptions, serve
from colibri_cli.options import takes
from colibri_cli.web_bundle import find_bundle


@takes(ServeOptions)
def command(options: ServeOptions) -> None:
    """Serve a model over the OpenAI and Anthropic APIs."""
    serve(options, "serve", dashboard=find_bundle)
