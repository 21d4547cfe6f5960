"""What the harness does, one phase per module; each returns its part of the report."""
