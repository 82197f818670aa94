"""The page on runs documents every event with all its fields."""

from __future__ import annotations

from dataclasses import fields

import pytest
from tests.support.docs_pages import ROOT

from trunkline.agents.runs import run_events

PAGE = ROOT / "docs" / "runs.md"
EVENTS = [one for one in vars(run_events).values() if isinstance(one, type) and issubclass(one, run_events.RunEvent)]
BASES = (run_events.RunEvent, run_events.StepEvent)


@pytest.mark.parametrize("event", [event for event in EVENTS if event not in BASES])
def test_the_page_on_runs_has_a_row_for_each_event_with_all_its_fields(event: type) -> None:
    name = "".join(f"_{ch.lower()}" if ch.isupper() else ch for ch in event.__name__).lstrip("_")
    [row] = [line for line in PAGE.read_text().splitlines() if line.startswith(f"| `{name}` |")]
    missing = [field.name for field in fields(event) if f"`{field.name}`" not in row]
    assert missing == []
