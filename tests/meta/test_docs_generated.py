"""The generated parts of the documentation are up to date."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.docs_pages import ROOT
from tools import (
    write_command_docs,
    write_config_docs,
    write_protected_path_docs,
    write_protocol_docs,
    write_route_and_tool_docs,
)
from tools.docs_regions import filled, outdated

TOOLS = {
    "tools.write_command_docs": write_command_docs.pages,
    "tools.write_config_docs": write_config_docs.pages,
    "tools.write_route_and_tool_docs": write_route_and_tool_docs.pages,
    "tools.write_protected_path_docs": write_protected_path_docs.pages,
    "tools.write_protocol_docs": write_protocol_docs.pages,
}


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_pages_are_current(tool: str) -> None:
    assert list(outdated(TOOLS[tool]())) == [], f"run `make generated` (`python -m {tool}`)"


@pytest.mark.parametrize("tool", sorted(TOOLS))
def test_make_generated_writes_them(tool: str) -> None:
    assert f"-m {tool}\n" in (ROOT / "Makefile").read_text()


def test_a_part_that_changed_or_is_missing_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# Page\n\n<!-- begin: keys -->\n\nold\n\n<!-- end: keys -->\n\ntext\n")
    assert list(outdated({page: {"keys": "new"}})) == ["page.md is not current"]
    (fault,) = outdated({page: {"keys": "old", "more": "x"}})
    assert fault.startswith("page.md has no part `more`")
    assert "new" in filled(page.read_text(), {"keys": "new"})
    assert filled(page.read_text(), {"keys": "old"}) == page.read_text()
