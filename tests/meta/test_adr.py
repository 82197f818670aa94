from __future__ import annotations

from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("*.md"))
ONE_PAGE_LINES = 60


def test_numbers_are_unique_and_leave_no_gap():
    assert [int(path.name.split("-")[0]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_each_record_is_one_page_with_the_four_sections(path):
    lines = path.read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith(f"# {path.name[:4]} ")
    assert [line for line in lines if line.startswith("## ")] == [
        "## Status",
        "## Context",
        "## Decision",
        "## Consequences",
    ]
    assert len(lines) <= ONE_PAGE_LINES
