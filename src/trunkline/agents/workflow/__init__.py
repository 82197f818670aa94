"""Workflow files: what they may hold, and everything that can be wrong with one, with its place."""
