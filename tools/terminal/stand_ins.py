"""Stand-ins for MCP servers that `npx` and `uvx` would fetch: small ones of our own, under the names people know.

`stand_ins.py [-y] PACKAGE …` serves the tools of PACKAGE over stdio; one that it does not know fails as `npx` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trunkline.demo.tools import ADDS, handshake_server, tool
from trunkline.mcpserver import Server, ToolError

_PATH = {"path": {"type": "string", "description": "A path below the allowed folder"}}
_CONTENT = {"content": {"type": "string", "description": "What to write"}}


def _server(name: str, instructions: str) -> Server:
    """One of the versions up to 2025-11-25, as the packages are that it stands in for."""
    return handshake_server(name, instructions, title="", capabilities={})


def _files(folder: Path) -> Server:
    server = _server("secure-filesystem-server", "Files below one folder.")

    def inside(arguments: dict[str, str]) -> Path:
        path = (folder / arguments["path"]).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise ToolError("Access denied: the path is outside the allowed folder")
        return path

    @tool(server, "Read a file", _PATH)
    def read_file(arguments: dict[str, str]) -> str:
        """Read the complete contents of a file."""
        try:
            return inside(arguments).read_text()
        except OSError as error:
            raise ToolError(f"{error.strerror}: {arguments['path']}") from None

    @tool(server, "List a folder", _PATH)
    def list_directory(arguments: dict[str, str]) -> str:
        """List the files and folders in a folder."""
        return "\n".join(sorted(path.name for path in inside(arguments).iterdir())) or "(empty)"

    @tool(server, "Write a file", {**_PATH, **_CONTENT}, annotations=ADDS)
    def write_file(arguments: dict[str, str]) -> str:
        """Create or replace a file."""
        inside(arguments).write_text(arguments["content"])
        return f"Wrote {arguments['path']}"

    return server


def _git() -> Server:
    server = _server("mcp-git", "A Git repository.")

    @tool(server, "Status")
    def git_status(arguments: dict[str, str]) -> str:
        """Show the working tree status."""
        return "nothing to commit"

    @tool(server, "Log")
    def git_log(arguments: dict[str, str]) -> str:
        """Show the commit log."""
        return "b1946ac Say hello"

    return server


def main(words: list[str]) -> None:
    package, *rest = [word for word in words if not word.startswith("-")]
    if "server-filesystem" in package:
        server = _files(Path(rest[0] if rest else "."))
    elif "server-git" in package:
        server = _git()
    else:
        sys.exit(f"npm error 404 Not Found: '{package}' is not in this registry.")
    server.run()


if __name__ == "__main__":
    main(sys.argv[1:])
