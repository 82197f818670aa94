"""Public names are listed in `__all__` and documented on the page of their library."""

from __future__ import annotations

import importlib
import inspect
import re

import pytest
from tests.support.docs_pages import DOCS

PAGES = {
    "trunkline": "gateway",
    "trunkline.client": "client",
    "trunkline.mcpserver": "mcpserver",
    "trunkline.plugin": "plugin",
    "trunkline.services": "services",
}


def test_every_page_is_of_a_library() -> None:
    assert {page.stem for page in (DOCS / "library").glob("*.md")} == set(PAGES.values())


@pytest.mark.parametrize("library", PAGES)
def test_public_names_are_declared_and_explained(library: str) -> None:
    module = importlib.import_module(library)
    names = set(module.__all__)
    assert [name for name in names if not hasattr(module, name)] == []
    own = {name for name, value in vars(module).items() if is_own(name, value)}
    assert own <= names, "public, but not in `__all__`"
    words = set(re.findall(r"\w+", (DOCS / "library" / f"{PAGES[library]}.md").read_text("utf-8")))
    assert names <= words, "in `__all__`, but not on its page"


def is_own(name: str, value: object) -> bool:
    public = not name.startswith("_") and (inspect.isclass(value) or inspect.isfunction(value))
    return public and getattr(value, "__module__", "").partition(".")[0] == "trunkline"
