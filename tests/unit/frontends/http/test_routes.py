from __future__ import annotations

import pytest

from trunkline.frontends.http.routes import MCP_PATHS, ROUTES
from trunkline.frontends.rest.bodies import SCHEMAS

pytestmark = pytest.mark.law
USE_OF_TOOLS = ("/api/tools/", "/api/proxy/")


def test_every_path_asks_for_one_credential() -> None:
    for path in {route.path for route in ROUTES}:
        assert len({route.credential for route in ROUTES if route.path == path}) == 1


def test_only_the_two_probes_are_open() -> None:
    assert {route.path for route in ROUTES if route.credential == "open"} == {"/healthz", "/readyz"}


def test_whatever_changes_the_gateway_is_the_operators() -> None:
    for route in ROUTES:
        if route.path not in MCP_PATHS and route.method != "GET" and not route.path.startswith(USE_OF_TOOLS):
            assert route.credential == "operator", route.path


def test_a_route_that_may_wait_documents_what_a_client_needs_to_try_again() -> None:
    waiting = {route.path for route in ROUTES if route.waits}
    for route in ROUTES:
        if route.path in waiting and route.path not in MCP_PATHS:
            assert route.problem == "CallProblem", route.endpoint


def test_every_schema_that_a_route_names_is_there() -> None:
    for route in ROUTES:
        named = {route.body, route.query, route.problem, *(answer.schema for answer in route.responses)} - {""}
        assert named <= SCHEMAS.keys()
