"""Stand-ins for MCP servers that `npx` and `uvx` would fetch: small ones of our own, under the names people know.

`stand_ins.py [-y] PACKAGE …` serves the tools of PACKAGE over stdio; one that it does not know fails as `npx` does.
"""

from __future__ import annotations

import sys
from pathlib import Path

from trunkline.demo.rpc import RpcServer
from trunkline.demo.stdio import serve_stdio
from trunkline.demo.toolbox import Answer, Arguments, Refusal, Tool, Toolbox, toolbox

_PATH = {"path": {"type": "string", "description": "A path below the allowed folder"}}


def _files(folder: Path) -> Toolbox:
    def inside(arguments: Arguments) -> Path:
        path = (folder / arguments["path"]).resolve()
        if not path.is_relative_to(folder.resolve()):
            raise Refusal("Access denied: the path is outside the allowed folder")
        return path

    def read(arguments: Arguments) -> Answer:
        try:
            return Answer(inside(arguments).read_text())
        except OSError as error:
            raise Refusal(f"{error.strerror}: {arguments['path']}") from None

    def show(arguments: Arguments) -> Answer:
        return Answer("\n".join(sorted(path.name for path in inside(arguments).iterdir())) or "(empty)")

    def write(arguments: Arguments) -> Answer:
        inside(arguments).write_text(arguments["content"])
        return Answer(f"Wrote {arguments['path']}")

    content = {"content": {"type": "string", "description": "What to write"}}
    return toolbox(
        "secure-filesystem-server",
        "Files",
        "Files below one folder.",
        Tool("read_file", "Read a file", "Read the complete contents of a file.", read, _PATH),
        Tool("list_directory", "List a folder", "List the files and folders in a folder.", show, _PATH),
        Tool("write_file", "Write a file", "Create or replace a file.", write, {**_PATH, **content}, read_only=False),
    )


def _git() -> Toolbox:
    return toolbox(
        "mcp-git",
        "Git",
        "A Git repository.",
        Tool("git_status", "Status", "Show the working tree status.", lambda _: Answer("nothing to commit")),
        Tool("git_log", "Log", "Show the commit log.", lambda _: Answer("b1946ac Say hello")),
    )


def main(words: list[str]) -> None:
    package, *rest = [word for word in words if not word.startswith("-")]
    if "server-filesystem" in package:
        server = _files(Path(rest[0] if rest else "."))
    elif "server-git" in package:
        server = _git()
    else:
        sys.exit(f"npm error 404 Not Found: '{package}' is not in this registry.")
    serve_stdio(RpcServer(server))


if __name__ == "__main__":
    main(sys.argv[1:])
