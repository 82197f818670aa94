"""The sdk folder needs nothing else: a copy of it works in another program."""

from __future__ import annotations

import ast
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.support.docs_pages import DOCS, Block, blocks
from tests.support.waiting import at_most

import trunkline.client
import trunkline.sdk

PACKAGE = Path(trunkline.sdk.__file__).parent
COPIED = """
import sys
sys.path.insert(0, sys.argv[1])
from vendored.client import App
from vendored.mcpserver import Server
from vendored.plugin import Plugin
import vendored.plugin_server

app, server, plugin = App("A"), Server("s"), Plugin("p")

@app.tool
@plugin.operation
def add(a: int, b: int = 1) -> int:
    return a + b

server.register_tool("add", app.tools["add"].input_schema, lambda given: add(**given))
print(app.tools["add"].input_schema["required"], list(server.tools), [each.name for each in plugin.operations])
print(sorted({name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - {"__main__", "__mp_main__"}))
"""


def imported(path: Path) -> set[str]:
    """Top-level names of everything a module imports that is not beside it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level != 1:
            names.add((node.module or "").partition(".")[0])
    return names


def test_it_imports_nothing_but_the_standard_library() -> None:
    names = {name for path in PACKAGE.glob("*.py") for name in imported(path)}
    assert names <= sys.stdlib_module_names


def test_a_copy_under_another_name_works_alone(tmp_path: Path) -> None:
    shutil.copytree(PACKAGE, tmp_path / "vendored", ignore=shutil.ignore_patterns("__pycache__"))
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", COPIED, str(tmp_path)], capture_output=True, text=True, timeout=at_most(60)
    )
    assert (done.stdout, done.stderr) == ("['a'] ['add'] ['add']\n['vendored']\n", "")


@pytest.mark.parametrize("library", ["client", "mcpserver", "plugin"])
def test_importing_a_library_loads_nothing_of_trunkline_but_the_sdk(library: str) -> None:
    program = f"import sys; sys.path.insert(0, sys.argv[1]); import trunkline.{library}; print(*sys.modules)"
    command = [sys.executable, "-I", "-S", "-c", program, str(PACKAGE.parents[1])]
    loaded = subprocess.run(command, check=True, capture_output=True, text=True, timeout=at_most(60)).stdout.split()
    ours = {".".join(name.split(".")[:2]) for name in loaded if name.partition(".")[0] == "trunkline"}
    assert ours == {"trunkline", "trunkline.sdk", f"trunkline.{library}"}


def test_every_public_name_of_the_client_is_in_the_docs() -> None:
    page = (DOCS / "library" / "client.md").read_text(encoding="utf-8")
    for name in trunkline.client.__all__:
        assert re.search(rf"`[^`]*\b{name}\b", page), name


SNIPPETS = [block for block in blocks(DOCS / "library" / "client.md", "python") if not block.file]


@pytest.mark.parametrize("block", SNIPPETS)
def test_what_the_docs_show_is_python_that_runs(block: Block) -> None:
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(block.text, "client.md", "exec"), names)
    assert names["app"].tools


def test_functions_run_in_the_main_loop_as_the_docs_show() -> None:
    (painter,) = [block for block in SNIPPETS if "every_frame" in block.text]
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(painter.text, "client.md", "exec"), names)
    done: list[str] = []
    names["jobs"].put(lambda: done.append("drawn"))
    names["every_frame"]()
    assert done == ["drawn"]
