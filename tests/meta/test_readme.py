"""The README stays one screen of the most important things; its examples are tested with those of the other pages."""

from __future__ import annotations

import re

from tests.support.docs_pages import ROOT, WITH_EXAMPLES, blocks, links

README = ROOT / "README.md"
TEXT = README.read_text(encoding="utf-8")
LONGEST_LINES = 100


def test_the_two_commands_are_targets_of_the_makefile() -> None:
    makefile = (ROOT / "Makefile").read_text()
    assert re.findall(r"^    make (\w+)", TEXT, re.MULTILINE) == ["run", "test"]
    assert re.search(r"^run:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)


def test_its_examples_are_among_those_that_are_run_and_loaded() -> None:
    assert README in WITH_EXAMPLES
    assert all(blocks(README, language) for language in ("console", "yaml", "json"))


def test_it_leads_to_the_documentation() -> None:
    assert {"docs/getting-started.md", "docs/README.md", "docs/errors.md", "docs/architecture.md"} <= set(links(README))


def test_it_stays_short() -> None:
    assert len(TEXT.splitlines()) <= LONGEST_LINES
