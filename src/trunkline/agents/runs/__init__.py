"""Runs of workflows and agents: a gateway for each step, the agent that uses it, and what is reported about it."""
