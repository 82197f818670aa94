"""Edits configuration files for `add` and `remove`: one entry is written or removed, every other byte stays."""
