"""The wire between the supervisor and an engine process, and the settings both sides share.

A leaf package: standard library only, no input or output of its own, imported by both sides and
importing neither. Import the modules themselves: `messages`, `frames`, `session`, `settings`,
`errors`. `docs/protocol.md` describes the same protocol for people who write another engine.
"""
