"""Drafts: tokens guessed ahead of a reply and verified in the one step that feeds them."""
