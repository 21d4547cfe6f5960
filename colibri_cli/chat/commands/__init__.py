"""The commands of a chat, one module per subject; each has a tuple `COMMANDS`."""
