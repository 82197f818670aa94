"""A server unrelated to the conformance suite, configured beside the backend: it must change nothing."""

from __future__ import annotations

from mcp.server.mcpserver import MCPServer

server = MCPServer("neighbour", version="1.0.0", instructions="Not of interest to anybody here.", log_level="ERROR")


@server.tool()
def water_plants(liters: int = 1) -> str:
    """Water the plants."""
    return f"Gave them {liters} l."


@server.prompt()
def garden_plan(season: str) -> str:
    """What to do in the garden."""
    return f"Plan the garden for {season}."


@server.resource("garden://tools", mime_type="text/plain")
def garden_tools() -> str:
    """What is in the shed."""
    return "A spade."


@server.resource("garden://beds/{bed}", mime_type="text/plain")
def garden_bed(bed: str) -> str:
    """What grows in a bed."""
    return f"Nothing grows in {bed} yet."


if __name__ == "__main__":
    server.run("stdio")
