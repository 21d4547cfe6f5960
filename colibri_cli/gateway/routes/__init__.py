"""One module per endpoint: `ROUTES`, and handlers that join a dialect with a running turn."""
