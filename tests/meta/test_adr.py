from __future__ import annotations

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "adr"
RECORDS = sorted(FOLDER.glob("*.md"))
ONE_PAGE_LINES = 60


def test_numbers_are_unique_and_leave_no_gap():
    assert [int(path.name.split("-")[0]) for path in RECORDS] == list(range(1, len(RECORDS) + 1))


def test_each_record_is_one_page_with_the_four_sections():
    for path in RECORDS:
        lines = path.read_text(encoding="utf-8").splitlines()
        assert lines[0].startswith(f"# {path.name[:4]} "), path.name
        sections = [line for line in lines if line.startswith("## ")]
        assert sections == ["## Status", "## Context", "## Decision", "## Consequences"], path.name
        assert len(lines) <= ONE_PAGE_LINES, path.name
