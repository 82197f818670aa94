"""Asking a gateway from the command line: which one, by which way, and what it answered."""
