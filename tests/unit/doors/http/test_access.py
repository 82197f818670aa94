from __future__ import annotations

import tracemalloc

import pytest

from trunkline.core.errors import HOST_REFUSED, ORIGIN_REFUSED, UNAUTHORIZED, Code
from trunkline.doors.http.access import ANONYMOUS, HOLDER, OPERATOR, Access, Credential, Denied
from trunkline.wire.http1 import HttpLimits, HttpProblem, HttpRequest, RequestParser

TOKEN = "s3cret-tökën"

pytestmark = pytest.mark.law


def asking(*headers: str, host: str | None = "127.0.0.1:4747") -> HttpRequest:
    """A request as it comes out of the parser: what that refuses never gets here."""
    requests: list[HttpRequest] = []
    lines = ["GET / HTTP/1.1", *([f"Host: {host}"] if host is not None else []), *headers, "", ""]
    RequestParser(HttpLimits(), requests.append).feed("\r\n".join(lines).encode())
    return requests[0]


def refusal(access: Access, request: HttpRequest, credential: Credential = "client") -> Code:
    with pytest.raises(Denied) as denied:
        access.check(request, credential)
    assert denied.value.problem.hint
    return denied.value.problem.code


LOOPBACK = Access("127.0.0.1", ["Gateway.Example", "10.0.0.5"], "")
EVERYWHERE = Access("0.0.0.0", ["gateway.example"], TOKEN)


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.0.0.1:4747",
        "localhost",
        "LOCALHOST:1",
        "[::1]",
        "[::1]:4747",
        "gateway.example",
        "10.0.0.5:80",
    ],
)
def test_our_own_names_are_served(host: str) -> None:
    assert LOOPBACK.check(asking(host=host)) == ANONYMOUS


@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "localhost.evil.example",
        "127.0.0.1.nip.io",
        "evil.example:4747",
        "localhost.",
        "127.0.0.2",
        "192.168.1.1",
        "[::2]",
        "[::ffff:127.0.0.1]",
        "2130706433",
        "0x7f.1",
        "127.1",
        "",
        ":4747",
        "127.0.0.1:99999",
        "sub.gateway.example",
        "notlocalhost",
    ],
)
def test_any_other_host_is_refused(host: str) -> None:
    assert refusal(LOOPBACK, asking(host=host)) is HOST_REFUSED


@pytest.mark.parametrize(
    "host", ["x/health", "localhost/../x", "localhost?x", "localhost#x", "a@localhost", "local host"]
)
def test_a_host_with_more_than_a_name_never_gets_this_far(host: str) -> None:
    with pytest.raises(HttpProblem):
        asking(host=host)


@pytest.mark.parametrize("host", ["192.168.1.1:4747", "[2001:db8::1]", "8.8.8.8", "gateway.example", "localhost"])
def test_beyond_loopback_any_address_is_ours_because_rebinding_needs_a_name(host: str) -> None:
    assert EVERYWHERE.check(asking(f"Authorization: Bearer {TOKEN}", host=host)) == HOLDER


def test_beyond_loopback_other_names_are_still_refused() -> None:
    assert refusal(EVERYWHERE, asking(f"Authorization: Bearer {TOKEN}", host="evil.example")) is HOST_REFUSED


@pytest.mark.parametrize(
    "origin",
    [
        "http://localhost",
        "http://localhost:3000",
        "https://127.0.0.1:4747",
        "http://[::1]:1",
        "https://gateway.example",
    ],
)
def test_our_own_origins_are_served(origin: str) -> None:
    assert LOOPBACK.check(asking(f"Origin: {origin}")) == ANONYMOUS


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://localhost.evil.example",
        "http://127.0.0.1.nip.io",
        "null",
        "",
        "localhost",
        "//localhost",
        "file://",
        "file://localhost",
        "chrome-extension://localhost",
        "http://localhost@evil.example",
        "http://evil.example#localhost",
        "http://evil.example?localhost",
        "http://localhost/path",
        "http://user@localhost",
        "http://localhost:99999",
        "http://localhost, http://evil.example",
        "http://localhost\\@evil.example",
        "http://[::1",
    ],
)
def test_any_other_origin_is_refused(origin: str) -> None:
    assert refusal(LOOPBACK, asking(f"Origin: {origin}")) is ORIGIN_REFUSED


def test_two_origins_are_none() -> None:
    assert refusal(LOOPBACK, asking("Origin: http://localhost", "Origin: http://evil.example")) is ORIGIN_REFUSED
    assert refusal(LOOPBACK, asking("Origin: http://localhost", "Origin: http://localhost")) is ORIGIN_REFUSED


def test_a_program_sends_no_origin_and_is_served() -> None:
    assert LOOPBACK.check(asking()) == ANONYMOUS


@pytest.mark.parametrize("header", [f"Bearer {TOKEN}", f"bearer {TOKEN}", f"BEARER   {TOKEN}", f"Bearer {TOKEN}\t"])
def test_the_right_token_lets_in(header: str) -> None:
    assert EVERYWHERE.check(asking(f"Authorization: {header}")) == HOLDER


@pytest.mark.parametrize(
    "headers",
    [
        [],
        ["Authorization: "],
        ["Authorization: Bearer"],
        ["Authorization: Bearer "],
        ["Authorization: Bearer wrong"],
        [f"Authorization: {TOKEN}"],
        [f"Authorization: Basic {TOKEN}"],
        [f"Authorization: Bearer {TOKEN}x"],
        [f"Authorization: Bearer {TOKEN[:-1]}"],
        [f"Authorization: Bearer {TOKEN.upper()}"],
        [f"Authorization: Bearer {TOKEN}, Bearer {TOKEN}"],
        [f"Authorization: Bearer {TOKEN}", f"Authorization: Bearer {TOKEN}"],
        [f"X-Authorization: Bearer {TOKEN}"],
        [f"Cookie: token={TOKEN}"],
    ],
)
def test_anything_but_the_right_token_is_refused(headers: list[str]) -> None:
    assert refusal(EVERYWHERE, asking(*headers)) is UNAUTHORIZED


def test_a_route_that_needs_no_token_still_checks_host_and_origin() -> None:
    EVERYWHERE.check(asking(), credential="open")
    assert refusal(EVERYWHERE, asking(host="evil.example"), credential="open") is HOST_REFUSED
    assert refusal(EVERYWHERE, asking("Origin: http://evil.example"), credential="open") is ORIGIN_REFUSED


def test_host_and_origin_come_before_the_token() -> None:
    assert refusal(EVERYWHERE, asking("Origin: http://evil.example")) is ORIGIN_REFUSED
    assert refusal(EVERYWHERE, asking(host="evil.example")) is HOST_REFUSED


def test_without_a_token_every_caller_is_the_same() -> None:
    assert LOOPBACK.check(asking("Authorization: Bearer whatever")) == ANONYMOUS


def test_many_hosts_do_not_fill_memory() -> None:
    access = Access("127.0.0.1", [], "")
    tracemalloc.start()
    try:
        for number in range(800):
            refusal(access, asking(host=f"{'h' * 200}{number}.example"))
            if number == 400:
                kept_bytes, _ = tracemalloc.get_traced_memory()
        grown_bytes = tracemalloc.get_traced_memory()[0] - kept_bytes
    finally:
        tracemalloc.stop()
    assert grown_bytes < 50_000
    assert access.check(asking()) == ANONYMOUS


# The operator's token -------------------------------------------------------------------------------------------------

OPERATOR_TOKEN = "0perator-tökën"


@pytest.mark.parametrize("access", [Access("127.0.0.1", [], token, OPERATOR_TOKEN) for token in ("", TOKEN)])
def test_operator_routes_want_the_operators_token_also_on_loopback(access: Access) -> None:
    assert access.check(asking(f"Authorization: Bearer {OPERATOR_TOKEN}"), "operator") == OPERATOR
    for headers in (
        [],
        ["Authorization: Bearer "],
        [f"Authorization: Bearer {TOKEN}"],
        [f"Authorization: Bearer {OPERATOR_TOKEN}x"],
        [f"Authorization: Basic {OPERATOR_TOKEN}"],
        [f"Authorization: {OPERATOR_TOKEN}"],
        [f"Authorization: Bearer {OPERATOR_TOKEN}", f"Authorization: Bearer {OPERATOR_TOKEN}"],
    ):
        assert refusal(access, asking(*headers), "operator") is UNAUTHORIZED


def test_the_operators_token_is_no_clients_token() -> None:
    access = Access("127.0.0.1", [], TOKEN, OPERATOR_TOKEN)
    assert refusal(access, asking(f"Authorization: Bearer {OPERATOR_TOKEN}")) is UNAUTHORIZED


def test_where_no_operators_token_is_set_nobody_is_the_operator() -> None:
    for access in (LOOPBACK, EVERYWHERE):
        for header in ("Bearer", "Bearer ", "Bearer  ", f"Bearer {TOKEN}", "", "Bearer None"):
            assert refusal(access, asking(f"Authorization: {header}"), "operator") is UNAUTHORIZED


def test_host_and_origin_are_checked_for_the_operator_too() -> None:
    access = Access("127.0.0.1", [], "", OPERATOR_TOKEN)
    bearer = f"Authorization: Bearer {OPERATOR_TOKEN}"
    assert refusal(access, asking(bearer, host="evil.example"), "operator") is HOST_REFUSED
    assert refusal(access, asking(bearer, "Origin: null"), "operator") is ORIGIN_REFUSED


def test_names_and_tokens_can_be_replaced_as_a_whole() -> None:
    access = Access("127.0.0.1", ["old.example"], TOKEN, OPERATOR_TOKEN)
    old, old_operator = asking(f"Authorization: Bearer {TOKEN}"), asking(f"Authorization: Bearer {OPERATOR_TOKEN}")
    assert access.check(asking(host="old.example"), "open") == ANONYMOUS
    assert refusal(access, asking(host="new.example"), "open") is HOST_REFUSED
    access.replace(allowed_hosts=["new.example"], token="next", operator_token="next-operator")
    assert refusal(access, old) is UNAUTHORIZED
    assert refusal(access, old_operator, "operator") is UNAUTHORIZED
    assert refusal(access, asking(host="old.example"), "open") is HOST_REFUSED
    assert access.check(asking(host="new.example"), "open") == ANONYMOUS
    assert access.check(asking("Authorization: Bearer next")) == HOLDER
    assert access.check(asking("Authorization: Bearer next-operator"), "operator") == OPERATOR
    access.replace(allowed_hosts=[], token="", operator_token="")
    assert access.check(asking()) == ANONYMOUS
    assert refusal(access, asking("Authorization: Bearer next-operator"), "operator") is UNAUTHORIZED
