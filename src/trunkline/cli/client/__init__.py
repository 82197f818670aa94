"""The clients by which commands reach a gateway: one already running, or one started for a single command."""
