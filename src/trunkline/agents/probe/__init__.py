"""Trying out an agent before it is trusted: one start against a model of ours, to see which tools it offers."""
