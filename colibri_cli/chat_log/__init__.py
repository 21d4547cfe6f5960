"""The log of conversations: one SQLite file of the user's own, searchable and resumable."""
