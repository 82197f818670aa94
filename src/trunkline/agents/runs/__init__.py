"""Running workflows and agents: a gateway for each step, the agent that uses it, and what is told about it."""
