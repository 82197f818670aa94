from __future__ import annotations

import pytest

from trunkline.protocol.mcp.notifications import LEVELS, RANKS, wanted


def test_levels_have_an_order() -> None:
    assert sorted(LEVELS, key=lambda level: RANKS[level]) == list(LEVELS)
    assert (LEVELS[0], LEVELS[-1]) == ("debug", "emergency")


@pytest.mark.parametrize(
    ("level", "least", "wants"),
    [("info", "info", True), ("debug", "info", False), ("alert", "info", True), ("odd", "emergency", True)],
)
def test_who_wants_which_message(level: str, least: str, wants: bool) -> None:
    assert wanted(level, least) is wants
