"""Changing a configuration file for `add` and `remove`: one entry is written or taken out, every other byte stays."""
