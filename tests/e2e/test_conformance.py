"""The official conformance harness: through the gateway everything is as it is without it, in every layout."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.conformance.client_scenarios import CLIENT_SCENARIOS, ClientScenario, judge_through_gateway
from tests.support.conformance.harness import LEGACY, MODERN, WIRES, Report, Wire, judge_server
from tests.support.conformance.layouts import DIRECT, THROUGH, TO_LEGACY, TO_MODERN, Layout, standing

pytestmark = pytest.mark.node

NO_KEY = "a request of the legacy era has no key: the gateway makes one up, and the harness wants the server's own"
NO_SUCH_ERROR = "a server of the legacy era has no error for a client that declares too little"
CANNOT_WORK_WITH_LEGACY = {
    "sep-2575-server-rejects-undeclared-capability": NO_SUCH_ERROR,
    "sep-2575-missing-capability-http-400": NO_SUCH_ERROR,
    "sep-2322-elicitation-incomplete": NO_KEY,
    "sep-2322-ignore-unexpected-params": NO_KEY,
}
"""Checks that a client of 2026-07-28 cannot have from a server of 2025-11-25, whoever stands between them."""


@pytest.mark.parametrize("wire", WIRES, ids=str)
def test_the_backend_alone_is_conformant(wire: Wire, tmp_path: Path) -> None:
    with standing(DIRECT, tmp_path) as url:
        report = judge_server(wire, url, tmp_path / "results")
    assert_all_is_well(report, wire)


@pytest.mark.parametrize("wire", WIRES, ids=str)
@pytest.mark.parametrize("layout", THROUGH, ids=str)
def test_the_gateway_is_as_conformant_as_the_backend_alone(layout: Layout, wire: Wire, tmp_path: Path) -> None:
    with standing(layout, tmp_path) as url:
        report = judge_server(wire, url, tmp_path / "results")
    assert_all_is_well(report, wire)


@pytest.mark.parametrize("layout", TO_MODERN, ids=str)
def test_a_client_of_the_legacy_era_has_everything_from_a_server_of_the_modern_one(
    layout: Layout, tmp_path: Path
) -> None:
    with standing(layout, tmp_path) as url:
        report = judge_server(LEGACY, url, tmp_path / "results")
    assert_all_is_well(report, LEGACY)


@pytest.mark.parametrize("layout", TO_LEGACY, ids=str)
def test_a_client_of_the_modern_era_has_everything_that_can_be_had_from_a_server_of_the_legacy_one(
    layout: Layout, tmp_path: Path
) -> None:
    with standing(layout, tmp_path) as url:
        report = judge_server(MODERN, url, tmp_path / "results")
    faults = [check for check in report.faults if check.id not in CANNOT_WORK_WITH_LEGACY]
    assert not faults, "\n".join(map(str, faults))
    assert len(report.scenarios) == MODERN.scenarios


@pytest.mark.parametrize("scenario", CLIENT_SCENARIOS, ids=str)
def test_the_gateway_is_a_conformant_client(scenario: ClientScenario, tmp_path: Path) -> None:
    report = judge_through_gateway(scenario, tmp_path)
    assert not report.failed_scenarios, report.explain()
    assert report.ok_checks == scenario.ok_checks, report.explain()


def assert_all_is_well(report: Report, wire: Wire) -> None:
    """Nothing failed, and as many checks are ok as the backend has alone: what was not looked at does not count."""
    assert not report.faults, report.explain()
    assert len(report.passed_scenarios) == wire.scenarios, report.explain()
    assert report.ok_checks >= wire.ok_checks, report.explain()
