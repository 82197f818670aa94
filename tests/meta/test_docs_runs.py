"""The page on runs names every event that a program may meet, with all its fields."""

from __future__ import annotations

from dataclasses import fields
from typing import get_args

import pytest
from tests.support.docs_pages import ROOT

from trunkline.agents.runs.run_events import RunEvent

PAGE = ROOT / "docs" / "runs.md"


@pytest.mark.parametrize("event", get_args(RunEvent))
def test_the_page_on_runs_has_a_row_for_each_event_with_all_its_fields(event: type) -> None:
    name = "".join(f"_{ch.lower()}" if ch.isupper() else ch for ch in event.__name__).lstrip("_")
    [row] = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |")]
    missing = [field.name for field in fields(event) if f"`{field.name}`" not in row]
    assert missing == []
