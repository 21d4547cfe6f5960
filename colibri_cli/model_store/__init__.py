"""Models on this machine: where pulled ones live, how names become paths, how they get here."""
