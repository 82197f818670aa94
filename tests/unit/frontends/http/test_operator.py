from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.http_wire import Reply, Wire, fetch, request_bytes
from tests.unit.frontends.rig import House, house

from trunkline.core.errors import (
    BAD_NAME,
    COMMAND_NOT_ALLOWED,
    RELOAD_REFUSED,
    SERVER_EXISTS,
    UNKNOWN_SERVER,
    Code,
    GatewayError,
    Problem,
)

TOKEN = "0perator"
BEARER = {"Authorization": f"Bearer {TOKEN}"}
JSON = {**BEARER, "Content-Type": "application/json"}
BODY = b'{"name":"x","url":"http://127.0.0.1:1/mcp"}'
SERVICE = b'{"endpoint":"http://127.0.0.1:1"}'
SERVERS = "/api/mcp/servers"


async def asked(
    here: House, method: str, path: str, body: bytes | None = None, headers: dict[str, str] | None = None
) -> Reply:
    return await fetch(here.port, method, path, JSON if headers is None else headers, body)


def problem_of(reply: Reply) -> tuple[int, str]:
    """The status, and the code of the problem."""
    return reply.status, json.loads(reply.body)["code"]


async def test_the_servers_are_listed_as_everywhere_and_ours_is_none_of_them(tmp_path: Path) -> None:
    async with house(tmp_path, operator_token=TOKEN) as here:
        here.rig.add("trunkline", "list_servers")
        here.rig.add("broken", state=None, kind="mcp_http", origin="api")
        here.rig.health("broken", "down", "nobody there")
        reply = await asked(here, "GET", SERVERS)
        assert (reply.status, reply.headers["cache-control"]) == (200, "no-store")
        first, second = json.loads(reply.body)["servers"]
        assert (first["name"], first["state"], first["tools"], first["origin"]) == ("s", "ready", 2, "file")
        assert (second["name"], second["reason"], second["origin"]) == ("broken", "nobody there", "api")


async def test_each_route_has_one_thing_done(tmp_path: Path) -> None:
    async with house(tmp_path, operator_token=TOKEN) as here:
        for method, path, body, status in (
            ("POST", SERVERS, BODY, 201),
            ("POST", f"{SERVERS}?persist=1", BODY, 201),
            ("POST", f"{SERVERS}?persist=0", BODY, 201),
            ("DELETE", f"{SERVERS}/a%2Db", None, 200),
            ("POST", f"{SERVERS}/s/reconnect", b"", 202),
            ("POST", "/api/reload", b"", 200),
            ("POST", "/api/services/svc", SERVICE, 201),
            ("POST", "/api/services/svc", b'{"renew":1}', 200),
            ("DELETE", "/api/services/svc", None, 200),
            ("PUT", "/api/sessions/a%2Fb%20c/token", b'{"token":"t"}', 200),
            ("DELETE", "/api/sessions/s/token", None, 200),
        ):
            reply = await asked(here, method, path, body)
            assert reply.status == status
            assert json.loads(reply.body) == {"done": here.operator.asked[-1][0]}
        assert here.operator.asked == [
            ("add", BODY, False),
            ("add", BODY, True),
            ("add", BODY, False),
            ("remove", "a-b"),
            ("reconnect", "s"),
            ("reload",),
            ("register", "svc", SERVICE),
            ("register", "svc", b'{"renew":1}'),
            ("leave", "svc"),
            ("put", "a/b c", b'{"token":"t"}'),
            ("drop", "s"),
        ]


@pytest.mark.parametrize("content_type", ["", "text/plain", "application/x-www-form-urlencoded", "application/jsonx"])
async def test_a_server_is_only_taken_as_json(tmp_path: Path, content_type: str) -> None:
    async with house(tmp_path, operator_token=TOKEN) as here:
        headers = {**BEARER, **({"Content-Type": content_type} if content_type else {})}
        assert problem_of(await asked(here, "POST", SERVERS, BODY, headers)) == (415, "TL410")
        assert problem_of(await asked(here, "POST", "/api/services/svc", SERVICE, headers)) == (415, "TL410")
        assert problem_of(await asked(here, "PUT", "/api/sessions/s/token", b'{"token":"t"}', headers)) == (
            415,
            "TL410",
        )
        assert here.operator.asked == []


async def test_json_may_come_with_a_charset(tmp_path: Path) -> None:
    async with house(tmp_path, operator_token=TOKEN) as here:
        headers = {**BEARER, "Content-Type": "Application/JSON; charset=utf-8"}
        assert (await asked(here, "POST", SERVERS, BODY, headers)).status == 201


@pytest.mark.parametrize(
    "query",
    [
        "presist=1",
        "persist",
        "persist=",
        "persist=yes",
        "persist=2",
        "persist=%31%31",
        "persist=1&persist=1",
        "persist=0&persist=1",
        "persist=1&x=y",
        "PERSIST=1",
        "&".join(f"a{number}=1" for number in range(50)),
    ],
)
async def test_a_query_that_is_not_understood_is_refused(tmp_path: Path, query: str) -> None:
    async with house(tmp_path, operator_token=TOKEN) as here:
        assert problem_of(await asked(here, "POST", f"{SERVERS}?{query}", BODY)) == (400, "TL323")
        assert here.operator.asked == []


@pytest.mark.parametrize(
    ("method", "path"),
    [("GET", SERVERS), ("DELETE", f"{SERVERS}/s"), ("POST", f"{SERVERS}/s/reconnect"), ("POST", "/api/reload")],
)
async def test_where_no_query_is_known_none_is_taken(tmp_path: Path, method: str, path: str) -> None:
    async with house(tmp_path, operator_token=TOKEN) as here:
        assert problem_of(await asked(here, method, f"{path}?persist=1", b"")) == (400, "TL323")
        assert here.operator.asked == []


@pytest.mark.parametrize(
    "name", ["..", "%2e%2e", "a%2Fb", "a%20b", "%2570", "a.b", "%00", "%0a", "s%0A", "%C3%A9", "%FF", "%", "a%zz"]
)
async def test_a_path_that_names_no_possible_server_never_gets_further(tmp_path: Path, name: str) -> None:
    async with house(tmp_path, operator_token=TOKEN) as here:
        assert problem_of(await asked(here, "DELETE", f"{SERVERS}/{name}")) == (404, "TL413")
        assert problem_of(await asked(here, "POST", f"{SERVERS}/{name}/reconnect", b"")) == (404, "TL413")
        assert here.operator.asked == []


@pytest.mark.parametrize(
    ("code", "status"), [(COMMAND_NOT_ALLOWED, 403), (SERVER_EXISTS, 409), (UNKNOWN_SERVER, 404), (RELOAD_REFUSED, 422)]
)
async def test_a_refusal_has_the_status_of_its_code(tmp_path: Path, code: Code, status: int) -> None:
    async with house(tmp_path, operator_token=TOKEN) as here:
        here.operator.refusal = GatewayError(Problem(code=code, message="No", hint="do this"))
        for method, path in (
            ("POST", SERVERS),
            ("DELETE", f"{SERVERS}/s"),
            ("POST", f"{SERVERS}/s/reconnect"),
            ("POST", "/api/reload"),
        ):
            reply = await asked(here, method, path, b"{}")
            assert reply.status == status
            assert json.loads(reply.body) == {"detail": "No", "code": code.id, "hint": "do this"}


async def test_several_faults_are_all_told_with_their_places(tmp_path: Path) -> None:
    async with house(tmp_path, operator_token=TOKEN) as here:
        fault = Problem(code=BAD_NAME, message="Not a name", where="trunkline.yaml:3:5", hint="use letters")
        warning = Problem(code=BAD_NAME, message="Odd", severity="warning")
        here.operator.refusal = GatewayError(Problem(code=RELOAD_REFUSED, message="2 faults"), (fault, warning))
        reply = await asked(here, "POST", "/api/reload", b"")
        assert json.loads(reply.body) == {
            "detail": "2 faults",
            "code": "TL130",
            "problems": [
                {
                    "detail": "Not a name",
                    "code": "TL111",
                    "hint": "use letters",
                    "severity": "error",
                    "where": "trunkline.yaml:3:5",
                },
                {"detail": "Odd", "code": "TL111", "severity": "warning"},
            ],
        }


@pytest.mark.law
async def test_without_the_operators_token_nothing_is_done_and_the_body_is_not_looked_at(tmp_path: Path) -> None:
    async with house(tmp_path, operator_token=TOKEN) as here, await Wire.connect(here.port) as wire:
        for path in (f"{SERVERS}?x=y", f"{SERVERS}/.../reconnect", "/api/reload"):
            reply = await wire.ask(request_bytes("POST", path, {}, b"not json"))
            assert (reply.status, reply.headers["www-authenticate"]) == (401, 'Bearer realm="trunkline"')
            assert problem_of(reply) == (401, "TL401")
        assert here.operator.asked == []


async def test_a_bug_behind_a_route_is_told_as_rest(tmp_path: Path) -> None:
    here = House(tmp_path, operator_token=TOKEN)
    here.operator.reload = lambda: 1 // 0  # type: ignore[method-assign,return-value,assignment]
    _, here.port = await here.http_server.start()
    reply = await asked(here, "POST", "/api/reload", b"")
    assert (reply.status, json.loads(reply.body)) == (500, {"detail": "Internal error", "code": "TL900"})
    assert [note.message for note in here.notes if note.event == "internal"] == [
        "ZeroDivisionError: integer division or modulo by zero"
    ]
    here.server.close()
    await here.http_server.close()
    here.rig.router.registry.close()
