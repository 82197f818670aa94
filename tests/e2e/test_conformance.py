"""The official conformance harness: through the gateway everything is as it is without it, in every layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.conformance.client_scenarios import CLIENT_SCENARIOS, ClientScenario, judge_through_gateway
from tests.support.conformance.expectations import client_shortfall, shortfall
from tests.support.conformance.harness import LEGACY, MODERN, WIRES, Wire, judge_server
from tests.support.conformance.layouts import DIRECT, THROUGH, TO_LEGACY, TO_MODERN, Layout, standing

pytestmark = [pytest.mark.node, pytest.mark.timeout(240)]


@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_the_backend_alone_is_conformant(wire: Wire, tmp_path: Path) -> None:
    assert_no_shortfall(DIRECT, wire, tmp_path)


@pytest.mark.parametrize("wire", WIRES, ids=str)
@pytest.mark.parametrize("layout", THROUGH, ids=str)
def test_the_gateway_is_as_conformant_as_the_backend_alone(layout: Layout, wire: Wire, tmp_path: Path) -> None:
    assert_no_shortfall(layout, wire, tmp_path)


@pytest.mark.parametrize("layout", TO_LEGACY, ids=str)
def test_clients_of_the_legacy_era_miss_nothing_of_a_server_of_their_own(layout: Layout, tmp_path: Path) -> None:
    """Where a server speaks both, the gateway speaks the modern era with it."""
    assert_no_shortfall(layout, LEGACY, tmp_path)


@pytest.mark.parametrize("layout", TO_MODERN, ids=str)
def test_a_client_of_the_legacy_era_has_all_it_can_from_a_server_of_the_modern_one(
    layout: Layout, tmp_path: Path
) -> None:
    assert_no_shortfall(layout, LEGACY, tmp_path)


@pytest.mark.parametrize("layout", TO_LEGACY, ids=str)
def test_a_client_of_the_modern_era_has_all_it_can_from_a_server_of_the_legacy_one(
    layout: Layout, tmp_path: Path
) -> None:
    assert_no_shortfall(layout, MODERN, tmp_path)


@pytest.mark.parametrize("scenario", CLIENT_SCENARIOS, ids=str)
def test_the_gateway_is_a_conformant_client(scenario: ClientScenario, tmp_path: Path) -> None:
    found = client_shortfall(scenario, judge_through_gateway(scenario, tmp_path))
    assert not found, found


def assert_no_shortfall(layout: Layout, wire: Wire, folder: Path) -> None:
    with standing(layout, folder) as url:
        report = judge_server(wire, url, folder / "results")
    found = shortfall(layout, wire, report)
    assert not found, found
