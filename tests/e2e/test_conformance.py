"""The official conformance suite: in every layout the results through the gateway equal the direct ones."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.conformance.client_scenarios import (
    CLIENT_MODULE,
    CLIENT_SCENARIOS,
    ClientScenario,
    judge_through_gateway,
)
from tests.support.conformance.expectations import client_shortfall, shortfall
from tests.support.conformance.harness import LEGACY, MODERN, WIRES, Wire, judge_server
from tests.support.conformance.layouts import (
    BACKEND_MODULE,
    DIRECT,
    THROUGH,
    TO_LEGACY,
    TO_MODERN,
    Layout,
    standing,
)
from tests.support.conformance.stock import Stock
from tests.support.pairs import pairs

pytestmark = [pytest.mark.node, pytest.mark.timeout(240)]

Case = tuple[Layout, Wire]
THROUGH_A_GATEWAY: list[Case] = [
    *((layout, wire) for layout in THROUGH for wire in WIRES),
    # where a server speaks both eras, the gateway speaks the modern one with it: here it has no choice
    *((layout, LEGACY) for layout in TO_MODERN),
    *((layout, wire) for layout in TO_LEGACY for wire in (LEGACY, MODERN)),
]


def values(case: Case) -> tuple[str, bool, str, str]:
    layout, wire = case
    return layout.transport, layout.beside, layout.era, wire.name


def kept() -> list[Case]:
    """Each pair of values, and the commonest layout whole."""
    paired = pairs(THROUGH_A_GATEWAY, values)
    return [case for case in THROUGH_A_GATEWAY if case in paired or case[0] == THROUGH[0]]


@pytest.fixture(scope="module")
def stock() -> Iterator[Stock]:
    with Stock(BACKEND_MODULE, CLIENT_MODULE) as stock:
        yield stock


@pytest.fixture(scope="module")
def layout(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, stock: Stock) -> Iterator[str]:
    """The address of one layout, in which wire after wire is tried."""
    with standing(request.param, tmp_path_factory.mktemp(str(request.param)), stock) as url:
        yield url


@pytest.mark.parametrize("wire", WIRES, ids=str)
@pytest.mark.parametrize("layout", [DIRECT], ids=str, indirect=True)
def test_the_backend_alone_is_conformant(layout: str, wire: Wire, tmp_path: Path) -> None:
    assert_no_shortfall(DIRECT, wire, layout, tmp_path)


@pytest.mark.parametrize(
    ("layout", "case"),
    [pytest.param(case[0], case, id=f"{case[0]}-{case[1]}") for case in kept()],
    indirect=["layout"],
)
def test_the_gateway_is_as_conformant_as_the_backend_alone(layout: str, case: Case, tmp_path: Path) -> None:
    """Clients of one era have all that they can from servers of the other."""
    assert_no_shortfall(*case, layout, tmp_path)


@pytest.mark.parametrize("scenario", CLIENT_SCENARIOS, ids=str)
def test_the_gateway_is_a_conformant_client(scenario: ClientScenario, stock: Stock, tmp_path: Path) -> None:
    found = client_shortfall(scenario, judge_through_gateway(scenario, tmp_path, stock))
    assert not found, found


def assert_no_shortfall(layout: Layout, wire: Wire, url: str, folder: Path) -> None:
    found = shortfall(layout, wire, judge_server(wire, url, folder / "results"))
    assert not found, found
