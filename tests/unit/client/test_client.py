"""The package as a whole: it stands alone, and says what is public."""

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

PACKAGE = Path(trunkline.client.__file__).parent


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
    shutil.copytree(PACKAGE, tmp_path / "dialin", ignore=shutil.ignore_patterns("__pycache__"))
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); import dialin;"
        "print(dialin.App('A').name, 'trunkline' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", program, str(tmp_path)], capture_output=True, text=True, timeout=at_most(60)
    )
    assert (done.stdout, done.stderr) == ("A False\n", "")


def test_every_public_name_is_there_and_in_the_docs() -> None:
    page = (DOCS / "library" / "client.md").read_text(encoding="utf-8")
    for name in trunkline.client.__all__:
        assert getattr(trunkline.client, name) is not None
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
