"""How commands reach a gateway: one that runs already, or one that is started for a single command."""
