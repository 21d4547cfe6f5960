"""One engine process and the conversation with it, shared by every command."""
