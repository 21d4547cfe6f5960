"""Bundled plugins, one module each; of ours they import only `colibri_cli.plugin_api`."""
