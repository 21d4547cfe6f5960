"""What `coli report` puts into its archive, and what it keeps out of it."""
