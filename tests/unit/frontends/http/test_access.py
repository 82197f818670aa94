from __future__ import annotations

import tracemalloc

import pytest

from trunkline.core.errors import (
    HOST_REFUSED,
    ORIGIN_REFUSED,
    REQUEST_TOO_LARGE,
    UNAUTHORIZED,
    UNSUPPORTED_MEDIA,
    Code,
)
from trunkline.frontends.http.access import (
    ANONYMOUS,
    OPERATOR,
    TOKEN_HOLDER,
    UNAUTHENTICATED,
    Access,
    Credential,
    Denied,
)
from trunkline.frontends.http.routes import MCP_PATHS, ROUTES
from trunkline.protocol.http1 import HttpRequest, RequestParser
from trunkline.protocol.http1_message import HttpLimits, HttpProblem

TOKEN = "s3cret-tökën"

pytestmark = pytest.mark.law


def asking(
    *headers: str, host: str | None = "127.0.0.1:4747", method: str = "GET", path: str = "/", body: str = ""
) -> HttpRequest:
    """A request as it comes out of the parser: what that refuses never gets here."""
    requests: list[HttpRequest] = []
    lines = [f"{method} {path} HTTP/1.1", *([f"Host: {host}"] if host is not None else []), *headers, "", body]
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
    assert EVERYWHERE.check(asking(f"Authorization: Bearer {TOKEN}", host=host)) == TOKEN_HOLDER


def test_beyond_loopback_other_names_are_still_refused() -> None:
    assert refusal(EVERYWHERE, asking(f"Authorization: Bearer {TOKEN}", host="evil.example")) is HOST_REFUSED


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:4747", "http://127.0.0.1:4747"),
        ("127.0.0.1:4747", "https://127.0.0.1:4747"),
        ("localhost:4747", "http://localhost:4747"),
        ("LocalHost:4747", "http://localhost:4747"),
        ("[::1]:4747", "http://[::1]:4747"),
        ("localhost", "http://localhost"),
        ("localhost", "https://localhost"),
        ("localhost:80", "http://localhost"),
        ("localhost", "http://localhost:80"),
        ("gateway.example", "https://gateway.example"),
        ("127.0.0.1:4747", "https://gateway.example"),
        ("127.0.0.1:4747", "https://gateway.example:443"),
        ("127.0.0.1:4747", "http://ui.example:3000"),
    ],
)
def test_our_own_origins_are_served(host: str, origin: str) -> None:
    access = Access("127.0.0.1", ["Gateway.Example", "ui.example:3000"], "")
    assert access.check(asking(f"Origin: {origin}", host=host)) == ANONYMOUS


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:4747", "http://127.0.0.1:8000"),
        ("127.0.0.1:4747", "http://127.0.0.1"),
        ("127.0.0.1:4747", "http://localhost:4747"),
        ("localhost:4747", "http://localhost:3000"),
        ("localhost:4747", "http://[::1]:4747"),
        ("localhost:4747", "http://localhost"),
        ("localhost", "http://localhost:4747"),
        ("gateway.example", "https://gateway.example:8443"),
        ("127.0.0.1:4747", "http://ui.example"),
        ("127.0.0.1:4747", "http://ui.example:3001"),
    ],
)
def test_a_page_on_another_port_is_as_foreign_as_any_other(host: str, origin: str) -> None:
    access = Access("127.0.0.1", ["Gateway.Example", "ui.example:3000"], "")
    assert refusal(access, asking(f"Origin: {origin}", host=host)) is ORIGIN_REFUSED


@pytest.mark.parametrize("listen", ["127.0.0.1", "127.0.0.2", "localhost", "::1"])
@pytest.mark.parametrize("address", ["192.168.1.66", "8.8.8.8:4747", "[2001:db8::1]", "10.1.1.1:80"])
def test_on_loopback_no_other_address_is_an_origin_or_a_host_of_ours(listen: str, address: str) -> None:
    access = Access(listen, [], "")
    host = f"[{listen}]:4747" if ":" in listen else f"{listen}:4747"
    assert access.check(asking(host=host)) == ANONYMOUS
    assert refusal(access, asking(f"Origin: http://{address}", host=host)) is ORIGIN_REFUSED
    assert refusal(access, asking(host=address)) is HOST_REFUSED


def test_beyond_loopback_a_page_must_come_from_where_it_sends_its_request() -> None:
    bearer = f"Authorization: Bearer {TOKEN}"
    ours = asking(bearer, "Origin: http://192.168.1.1:4747", host="192.168.1.1:4747")
    theirs = asking(bearer, "Origin: http://192.168.1.66:4747", host="192.168.1.1:4747")
    assert EVERYWHERE.check(ours) == TOKEN_HOLDER
    assert refusal(EVERYWHERE, theirs) is ORIGIN_REFUSED


# What browsers add ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("site", ["cross-site", "same-site", "Same-Origin", "", "same-origin, none"])
def test_what_a_page_of_another_site_has_fetched_is_refused(method: str, site: str) -> None:
    for more in ([], ["Sec-Fetch-Mode: no-cors"], ["Origin: http://127.0.0.1:4747"]):
        request = asking(f"Sec-Fetch-Site: {site}", *more, method=method)
        assert refusal(LOOPBACK, request) is ORIGIN_REFUSED


@pytest.mark.parametrize("port", [6274, 6275])
def test_a_page_that_no_allowed_host_would_let_in_is_not_told_to_become_one(port: int) -> None:
    access = Access("127.0.0.1", ["localhost:6274"], "")
    page = f"Origin: http://localhost:{port}"
    for site, helps in (("same-site", False), ("cross-site", False), ("same-origin", True)):
        if helps and port == 6274:
            assert access.check(asking(page, f"Sec-Fetch-Site: {site}")) == ANONYMOUS
            continue
        with pytest.raises(Denied) as denied:
            access.check(asking(page, f"Sec-Fetch-Site: {site}"))
        assert ("gateway.allowed_hosts" in denied.value.problem.hint) is helps


@pytest.mark.parametrize("site", ["same-origin", "none"])
def test_a_page_of_ours_and_an_address_that_was_typed_are_served(site: str) -> None:
    for method in ("GET", "POST"):
        assert LOOPBACK.check(asking(f"Sec-Fetch-Site: {site}", method=method)) == ANONYMOUS


def test_a_link_on_another_site_may_lead_to_a_page_but_not_into_the_api() -> None:
    linked = ("Sec-Fetch-Site: cross-site", "Sec-Fetch-Mode: navigate")
    assert LOOPBACK.check(asking(*linked)) == ANONYMOUS
    assert refusal(LOOPBACK, asking(*linked, method="POST")) is ORIGIN_REFUSED
    assert refusal(LOOPBACK, asking(*linked, path="/api/tools/discover?query=x")) is ORIGIN_REFUSED


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_link_on_another_site_may_lead_to_every_page_and_to_nothing_else(site: str) -> None:
    """A link to a path where MCP is spoken, or a frame of it, would open a session."""
    linked = (f"Sec-Fetch-Site: {site}", "Sec-Fetch-Mode: navigate")
    paths = {route.path for route in ROUTES}
    pages = {path for path in paths - {*MCP_PATHS} if not path.startswith("/api/")}
    assert "/" in pages
    for path in pages:
        for method in ("GET", "HEAD"):
            assert LOOPBACK.check(asking(*linked, method=method, path=path)) == ANONYMOUS, path
    for path in {*paths, "/mcp/", "/sse/", "/nothing"} - pages:
        for method in ("GET", "HEAD"):
            assert refusal(LOOPBACK, asking(*linked, method=method, path=path)) is ORIGIN_REFUSED, path


@pytest.mark.parametrize("browser", ["Sec-Fetch-Site: same-origin", "Origin: http://127.0.0.1:4747"])
@pytest.mark.parametrize("kind", ["text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""])
def test_a_browser_sends_json_or_nothing(browser: str, kind: str) -> None:
    typed = [f"Content-Type: {kind}"] if kind else []
    for framing, body in (("Content-Length: 2", "{}"), ("Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n")):
        request = asking(browser, *typed, framing, method="POST", body=body)
        assert refusal(LOOPBACK, request) is UNSUPPORTED_MEDIA
    json = "Content-Type: Application/JSON; charset=utf-8"
    assert LOOPBACK.check(asking(browser, json, "Content-Length: 2", method="POST", body="{}")) == ANONYMOUS
    assert LOOPBACK.check(asking(browser, "Content-Length: 0", method="POST")) == ANONYMOUS
    program = asking(*typed, "Content-Length: 2", method="POST", body="{}")
    assert LOOPBACK.check(program) == ANONYMOUS, "what programs send is judged by the route"


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
    assert EVERYWHERE.check(asking(f"Authorization: {header}")) == TOKEN_HOLDER


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


CHUNKED = ("Transfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n")


def test_a_stranger_may_not_have_us_keep_a_large_body() -> None:
    access = Access("127.0.0.1", [], TOKEN, "")
    for size in (0, 65536):
        request = asking(f"Content-Length: {size}", method="POST", body="x" * size)
        assert access.check(request, "open") == UNAUTHENTICATED
    for length, body in (("Content-Length: 65537", "x" * 65537), CHUNKED):
        assert refusal(access, asking(length, method="POST", body=body), "open") is REQUEST_TOO_LARGE
        assert refusal(access, asking(length, method="POST", body=body)) is UNAUTHORIZED
        holder = asking(f"Authorization: Bearer {TOKEN}", length, method="POST", body=body)
        assert access.check(holder, "open") == TOKEN_HOLDER
        assert LOOPBACK.check(asking(length, method="POST", body=body), "open") == ANONYMOUS, "there is no token"


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
    assert access.check(asking(host="old.example"), "open") == UNAUTHENTICATED
    assert refusal(access, asking(host="new.example"), "open") is HOST_REFUSED
    access.replace(allowed_hosts=["new.example"], token="next", operator_token="next-operator")
    assert refusal(access, old) is UNAUTHORIZED
    assert refusal(access, old_operator, "operator") is UNAUTHORIZED
    assert refusal(access, asking(host="old.example"), "open") is HOST_REFUSED
    assert access.check(asking(host="new.example"), "open") == UNAUTHENTICATED
    assert access.check(asking("Authorization: Bearer next")) == TOKEN_HOLDER
    assert access.check(asking("Authorization: Bearer next-operator"), "operator") == OPERATOR
    access.replace(allowed_hosts=[], token="", operator_token="")
    assert access.check(asking()) == ANONYMOUS
    assert refusal(access, asking("Authorization: Bearer next-operator"), "operator") is UNAUTHORIZED
