"""Workflow files: their format, and every error in one with its place."""
