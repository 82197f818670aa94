from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from openapi_pydantic import OpenAPI
from tests.support.http_wire import fetch
from tests.unit.frontends.rig import house
from tools.docs_regions import json_text
from tools.write_openapi import DOCUMENT, main

from trunkline.core.errors import BAD_NAME, RELOAD_REFUSED, GatewayError, Problem
from trunkline.core.source import Health
from trunkline.frontends.http.routes import ROUTES
from trunkline.frontends.rest.openapi import openapi_document, operation_id
from trunkline.version import __version__

OPENAPI = openapi_document(ROUTES)
OPERATOR_TOKEN = "0perator"
BEARER = {"Authorization": f"Bearer {OPERATOR_TOKEN}"}


def validate(value: Any, schema: str) -> None:
    whole = {"$ref": f"#/components/schemas/{schema}", "components": OPENAPI["components"]}
    jsonschema.Draft202012Validator(whole).validate(value)


def test_the_checked_in_document_is_what_the_table_gives() -> None:
    assert DOCUMENT.read_text(encoding="utf-8") == json_text(OPENAPI), "run `python -m tools.write_openapi`"
    assert main(["--check"]) == 0


def test_it_is_an_openapi_document() -> None:
    parsed = OpenAPI.model_validate(OPENAPI)
    assert parsed.openapi.startswith("3.1")
    assert parsed.info.version == __version__
    assert parsed.components is not None


def test_every_schema_is_one_and_every_reference_leads_somewhere() -> None:
    for schema in OPENAPI["components"]["schemas"].values():
        jsonschema.Draft202012Validator.check_schema(schema)
    for name in re.findall(r'"#/components/schemas/(\w+)"', json_text(OPENAPI)):
        assert name in OPENAPI["components"]["schemas"]


def test_every_route_is_in_it_once_with_its_credential() -> None:
    expected = {"open": [], "client": [{"client": []}, {}], "operator": [{"operator": []}]}
    for route in ROUTES:
        operation = OPENAPI["paths"][route.path][route.method.lower()]
        assert operation["security"] == expected[route.credential]
        assert set(map(str, (answer.status for answer in route.responses))) <= set(operation["responses"])
        assert ("401" in operation["responses"]) == (route.credential != "open")
        assert {"403", "421"} <= set(operation["responses"])
    operations = [name for path in OPENAPI["paths"].values() for name in path if name != "parameters"]
    assert len(operations) == len(ROUTES)
    assert len({operation_id(route) for route in ROUTES}) == len(ROUTES)


async def test_the_gateway_serves_the_document(tmp_path: Path) -> None:
    async with house(tmp_path) as here:
        reply = await fetch(here.port, "GET", "/api/openapi.json")
        assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
        assert json.loads(reply.body) == json.loads(DOCUMENT.read_text(encoding="utf-8"))


async def test_what_is_answered_fits_the_document(tmp_path: Path) -> None:
    async with house(tmp_path, operator_token=OPERATOR_TOKEN) as here:
        for path, schema in (("/healthz", "Health"), ("/readyz", "Readiness")):
            validate(json.loads((await fetch(here.port, "GET", path)).body), schema)
        here.rig.sinks["s"].health(
            Health(
                state="down",
                reason="it crashed",
                since=1.7e9,
                last_error="exit status 1",
                restarts=3,
                stderr_tail="Traceback",
                hint="look at it",
            )
        )
        here.rig.add("t", "x", kind="mcp_http", origin="api")
        validate(json.loads((await fetch(here.port, "GET", "/api/mcp/servers", BEARER)).body), "Servers")
        for path in ("/api/mcp/servers", "/api/nothing"):
            validate(json.loads((await fetch(here.port, "PATCH", path)).body), "Problem")
        fault = Problem(code=BAD_NAME, message="no", where="f.yaml:1:2", hint="other")
        here.operator.refusal = GatewayError(Problem(code=RELOAD_REFUSED, message="no", hint="x"), (fault, fault))
        refused = json.loads((await fetch(here.port, "POST", "/api/reload", BEARER, b"")).body)
        validate(refused, "Problem")
        assert len(refused["problems"]) == 2
        wrong = await fetch(here.port, "POST", "/mcp", {"Content-Type": "text/plain"}, b"{}")
        validate(json.loads(wrong.body), "JsonRpcError")


@pytest.mark.parametrize(
    "body",
    [
        {"name": "tracker", "url": "https://tracker.example.com/mcp"},
        {"name": "t", "url": "http://127.0.0.1:1/mcp", "headers": {"X": "y"}, "type": "http", "timeout": 1000},
    ],
)
def test_a_new_server_is_described_as_it_is_taken(body: dict[str, Any]) -> None:
    validate(body, "NewServer")


def test_a_server_without_a_url_is_none() -> None:
    with pytest.raises(jsonschema.ValidationError):
        validate({"name": "x", "command": "rm"}, "NewServer")
