"""Agents and workflows: running other programs' agents, or models behind an API, with our tools."""
