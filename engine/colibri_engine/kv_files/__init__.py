"""Conversations that survive a restart: one file per slot, written beside the engine's steps."""
