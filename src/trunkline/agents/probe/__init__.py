"""Probing an agent before it is trusted: one start against a model of ours shows which tools it offers."""
