"""The operator API of a running gateway: add, remove and reconnect servers, reload the file."""

from __future__ import annotations

import json
import stat
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from tests.support.app_peer import AppPeer
from tests.support.gateway import Gateway, write_config
from tests.support.http_wire import Reply, fetch
from tests.support.ports import free_port
from tests.support.servers import HttpFaults, StdioFaults
from tests.support.waiting import START_WAIT_S, until

OPERATOR = "an-operators-token"
CLIENT = "a-clients-token"
SERVERS = "/api/mcp/servers"


class Api:
    """The operator of one gateway."""

    def __init__(self, gateway: Gateway, token: str = OPERATOR) -> None:
        self._port = gateway.port
        self._headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}

    async def ask(self, method: str, path: str, body: Any = None) -> Reply:
        data = None if body is None and method != "POST" else json.dumps({} if body is None else body).encode()
        return await fetch(self._port, method, path, self._headers, data)

    async def servers(self) -> dict[str, dict[str, Any]]:
        reply = await self.ask("GET", SERVERS)
        assert reply.status == 200, reply.body
        return {server["name"]: server for server in json.loads(reply.body)["servers"]}

    async def ready(self, name: str) -> dict[str, Any]:
        async def look() -> dict[str, Any] | None:
            server = (await self.servers()).get(name, {})
            return server if server.get("state") == "ready" else None

        found = await until(look, f"server {name} is ready")
        assert found is not None
        return found


def problem_of(reply: Reply) -> tuple[int, str]:
    return reply.status, json.loads(reply.body)["code"]


def described(gateway_document: bytes, schema: str) -> jsonschema.Draft202012Validator:
    document = json.loads(gateway_document)
    whole = {"$ref": f"#/components/schemas/{schema}", "components": document["components"]}
    return jsonschema.Draft202012Validator(whole)


async def test_a_server_is_added_used_reconnected_and_removed_while_a_client_stays(tmp_path: Path) -> None:
    first = StdioFaults(tmp_path, "first")
    with (
        HttpFaults(tmp_path, "second") as second,
        Gateway(tmp_path, first.entry(), operator_token=OPERATOR, start_wait=START_WAIT_S) as gateway,
    ):
        api = Api(gateway)
        document = (await fetch(gateway.port, "GET", "/api/openapi.json")).body
        async with gateway.client() as client:
            assert not [name for name in await client.tool_names() if name.startswith("second_")]
            added = await api.ask("POST", SERVERS, {"name": "second", "url": second.url})
            assert added.status == 201, added.body
            described(document, "ServerAdded").validate(json.loads(added.body))
            assert (await api.ready("second"))["origin"] == "api"
            assert (await api.servers())["first"]["origin"] == "file"
            assert (await client.call("second_echo", {"text": "hi"})).text == '{"text": "hi"}'
            assert problem_of(await api.ask("POST", SERVERS, {"name": "second", "url": second.url})) == (409, "TL412")

            begun = await api.ask("POST", f"{SERVERS}/second/reconnect")
            assert begun.status == 202, begun.body
            described(document, "ServerNameResponse").validate(json.loads(begun.body))
            await api.ready("second")
            assert not (await client.call("second_echo", {"text": "again"})).failed
            described(document, "Servers").validate(json.loads((await api.ask("GET", SERVERS)).body))

            removed = await api.ask("DELETE", f"{SERVERS}/second")
            assert removed.status == 200, removed.body
            described(document, "ServerNameResponse").validate(json.loads(removed.body))
            assert list(await api.servers()) == ["first"]
            assert not [name for name in await client.tool_names() if name.startswith("second_")]
            assert problem_of(await api.ask("DELETE", f"{SERVERS}/second")) == (404, "TL413")
            assert problem_of(await api.ask("POST", f"{SERVERS}/second/reconnect")) == (404, "TL413")
    for change in ("second added", "second removed", "reconnected"):
        assert change in gateway.log
    assert OPERATOR not in gateway.log
    assert "TL124" not in gateway.log, "no key of this configuration is without effect"


NO_SERVERS = [
    ({"name": "x", "command": "touch", "args": ["pwned"]}, (403, "TL411")),
    ({"name": "x", "url": "http://127.0.0.1:1/", "command": "touch"}, (403, "TL411")),
    ({"name": "x", "url": "http://127.0.0.1:1/", "env": {"A": "b"}}, (403, "TL411")),
    ({"name": "x"}, (422, "TL414")),
    ({"url": "http://127.0.0.1:1/"}, (422, "TL414")),
    ({"name": "../x", "url": "http://127.0.0.1:1/"}, (422, "TL414")),
    ({"name": "trunkline", "url": "http://127.0.0.1:1/"}, (422, "TL414")),
    ({"name": "x", "url": "file:///etc/passwd"}, (422, "TL414")),
    ({"name": "x", "url": 1}, (422, "TL414")),
    ([], (422, "TL414")),
    ("x", (422, "TL414")),
]


async def test_what_is_no_server_or_would_run_something_is_refused(tmp_path: Path) -> None:
    with Gateway(tmp_path, operator_token=OPERATOR) as gateway:
        api = Api(gateway)
        for body, expected in NO_SERVERS:
            reply = await api.ask("POST", SERVERS, body)
            assert problem_of(reply) == expected, body
            assert json.loads(reply.body)["detail"]
        assert await api.servers() == {}


async def test_what_was_added_for_good_outlives_a_restart_and_the_rest_does_not(tmp_path: Path) -> None:
    with HttpFaults(tmp_path, "kept") as kept, HttpFaults(tmp_path, "lost") as lost:
        with Gateway(tmp_path, operator_token=OPERATOR) as gateway:
            api = Api(gateway)
            assert (await api.ask("POST", f"{SERVERS}?persist=1", {"name": "kept", "url": kept.url})).status == 201
            assert (await api.ask("POST", SERVERS, {"name": "lost", "url": lost.url})).status == 201
        gateway.start()
        assert list(await api.servers()) == ["kept"]
        await api.ready("kept")
        assert (await api.ask("DELETE", f"{SERVERS}/kept")).status == 200
        gateway.stop()
        gateway.start()
        assert await api.servers() == {}
        gateway.stop()


async def test_the_file_is_read_again_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    first, second = StdioFaults(tmp_path, "first"), StdioFaults(tmp_path, "second")
    with Gateway(tmp_path, first.entry(), operator_token=OPERATOR, start_wait=START_WAIT_S) as gateway:
        api = Api(gateway)
        await api.ready("first")
        same = {"listen": f"127.0.0.1:{gateway.port}", "operator_token": OPERATOR, "start_wait": START_WAIT_S}

        write_config(tmp_path, {"bad name": {"kind": "mcp_stdio"}, "x": {"kind": "nonsense"}}, **same)
        refused = await api.ask("POST", "/api/reload")
        assert problem_of(refused) == (422, "TL130")
        problems = json.loads(refused.body)["problems"]
        assert len(problems) >= 2
        assert all("trunkline.json:" in problem["where"] for problem in problems)
        assert list(await api.servers()) == ["first"]

        write_config(tmp_path, first.entry(), second.entry(), **same)
        reply = await api.ask("POST", "/api/reload")
        assert reply.status == 200, reply.body
        document = (await fetch(gateway.port, "GET", "/api/openapi.json")).body
        described(document, "Reloaded").validate(json.loads(reply.body))
        await api.ready("second")
        assert list(await api.servers()) == ["first", "second"]
        assert len(first.pids()) == 1, "a server that did not change keeps its process"


async def test_a_reload_changes_the_tokens(tmp_path: Path) -> None:
    with Gateway(tmp_path, operator_token=OPERATOR) as gateway:
        api = Api(gateway)
        listen = f"127.0.0.1:{gateway.port}"
        write_config(tmp_path, listen=listen, token="another-clients", operator_token="another-operators")
        # the file may be taken up before we ask, and then the old token is void already
        assert (await api.ask("POST", "/api/reload")).status in (200, 401)

        async def taken_up() -> bool:
            return (await Api(gateway, "another-operators").ask("GET", SERVERS)).status == 200

        await until(taken_up, "the new operator's token is good")
        assert problem_of(await api.ask("GET", SERVERS)) == (401, "TL401")
        assert (await fetch(gateway.port, "GET", "/metrics")).status == 401
        assert (await fetch(gateway.port, "GET", "/metrics", {"Authorization": "Bearer another-clients"})).status == 200


@pytest.mark.law
async def test_without_a_configured_token_one_is_made_that_only_the_owner_can_read(tmp_path: Path) -> None:
    with Gateway(tmp_path, token=CLIENT) as gateway:
        (path,) = (tmp_path / "state" / "gateways").glob("*/operator_token")
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        await until(lambda: str(path) in gateway.log, "the log names the file")
        token = path.read_text().strip()
        assert token not in gateway.log
        assert await Api(gateway, token).servers() == {}
        for wrong in (CLIENT, "", "None", f"{token}x"):
            assert problem_of(await Api(gateway, wrong).ask("GET", SERVERS)) == (401, "TL401")


async def test_an_app_is_listed_but_is_its_own_to_bring_and_to_take(tmp_path: Path) -> None:
    port = free_port()
    desktop = {"desktop": {"kind": "app", "listen": f"127.0.0.1:{port}"}}
    with Gateway(tmp_path, desktop, operator_token=OPERATOR) as gateway:
        api = Api(gateway)
        await api.ready("desktop")
        async with await AppPeer.dial(port) as app:
            await app.register("Paint", ("Paint:draw",))
            assert (await api.ready("Paint"))["origin"] == "app"
            for method, path in (("DELETE", f"{SERVERS}/Paint"), ("POST", f"{SERVERS}/Paint/reconnect")):
                reply = await api.ask(method, path)
                assert problem_of(reply) == (404, "TL413")
                assert json.loads(reply.body)["detail"] == "`Paint` is a connected app"
