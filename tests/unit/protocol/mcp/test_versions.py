from __future__ import annotations

import pytest

from trunkline.protocol.mcp.versions import LATEST_LEGACY, LEGACY, MODERN, SUPPORTED, negotiate


@pytest.mark.parametrize("version", LEGACY)
def test_a_version_we_know_is_answered_with_itself(version: str) -> None:
    assert negotiate(version) == version


@pytest.mark.parametrize("version", ["2026-07-28", "1999-01-01", "", "latest"])
def test_any_other_is_answered_with_our_latest_legacy_version(version: str) -> None:
    assert negotiate(version) == LATEST_LEGACY == "2025-11-25"


def test_the_eras_do_not_overlap() -> None:
    assert not set(LEGACY) & set(MODERN)
    assert sorted(SUPPORTED) == sorted(LEGACY + MODERN)
