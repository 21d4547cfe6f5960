"""`coli plan`: what is asked of the engine's planning job, and its answer as a table."""
