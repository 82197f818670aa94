from __future__ import annotations

import json
from typing import Any

import pytest

from trunkline.config.registration import LEASE_S, read_leased_service
from trunkline.core.errors import SERVER_NOT_VALID, GatewayError
from trunkline.sources import section_kinds
from trunkline.sources.service import ServiceSection


def read(name: str = "svc", **keys: Any) -> tuple[ServiceSection, float]:
    body = json.dumps({"endpoint": "http://10.0.0.7:80", **keys}).encode()
    leased = read_leased_service(name, body, section_kinds()["service"])
    assert isinstance(leased.section, ServiceSection)
    return leased.section, leased.lease_s


def test_an_endpoint_is_enough() -> None:
    section, lease_s = read()
    assert (section.endpoint, section.prefix, lease_s) == ("http://10.0.0.7:80", "svc", LEASE_S)
    assert section.guard.path_traversal is True


def test_a_service_says_what_it_offers_and_what_to_show_it() -> None:
    section, lease_s = read(tools=[{"name": "a", "inputSchema": {"type": "object"}}], token="t0ken", lease=5)
    assert ([tool.name for tool in section.declare], section.tokens, lease_s) == (["a"], {"*": "t0ken"}, 5)


def test_the_keys_of_a_file_are_taken_too() -> None:
    section, _ = read(declare=[{"name": "a"}], tools={"deny": ["b"]}, tokens={"s": "x"}, timeout=3, prefix="p")
    assert (section.declare[0].name, section.tools.deny, section.tokens) == ("a", ("b",), {"s": "x"})
    assert (section.timeout, section.prefix) == (3, "p")


@pytest.mark.parametrize(
    "keys",
    [
        {"endpoint": "file:///etc/passwd"},
        {"endpoint": "unix:/run/x"},
        {"endpoint": 7},
        {"endpoint": "http://h/${HOME}"},
        {"lease": 0},
        {"lease": -1},
        {"lease": "soon"},
        {"lease": 1e9},
        {"token": 7},
        {"token": "a b"},
        {"token": "a", "tokens": {"*": "b"}},
        {"command": "rm"},
        {"kind": "mcp_stdio"},
        {"surprise": 1},
        {"tools": [{"nam": "a"}]},
    ],
)
def test_whatever_else_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(GatewayError) as error:
        read(**keys)
    assert error.value.problem.code is SERVER_NOT_VALID


@pytest.mark.parametrize("name", ["", "a.b", "a/b", "trunkline", "é", "a b"])
def test_the_id_is_a_servers_name(name: str) -> None:
    with pytest.raises(GatewayError) as error:
        read(name)
    assert error.value.problem.code is SERVER_NOT_VALID


@pytest.mark.parametrize("body", [b"", b"[]", b"7", b"{", b"\xff", b'{"endpoint": "http://h", "endpoint": "http://i"}'])
def test_a_body_that_is_no_description_is_refused(body: bytes) -> None:
    with pytest.raises(GatewayError) as error:
        read_leased_service("svc", body, section_kinds()["service"])
    assert error.value.problem.code is SERVER_NOT_VALID
