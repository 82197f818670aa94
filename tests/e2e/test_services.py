"""Services behind a running gateway: the example, tokens set for a session, and leases."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.answers import Answer
from tests.support.docs_pages import ROOT
from tests.support.gateway import TRUNKLINE, Gateway
from tests.support.http_wire import Reply, fetch
from tests.support.ports import free_port
from tests.support.services import TOKEN, ServiceProcess
from tests.support.traversal import REFUSED
from tests.support.waiting import at_most, until

EXAMPLE = ROOT / "examples" / "service"
OPERATOR = "an-operators-token"
NO_TOKEN = (403, "TL317", "no")
PATH_TRAVERSAL = (403, "TL315", "no")


class Api:
    def __init__(self, gateway: Gateway) -> None:
        self._port = gateway.port
        self._headers = {"Authorization": f"Bearer {OPERATOR}", "Content-Type": "application/json"}

    async def ask(self, method: str, path: str, body: Any = None) -> Reply:
        data = None if body is None else json.dumps(body).encode()
        return await fetch(self._port, method, f"/api/{path}", self._headers, data)

    async def states(self) -> dict[str, str]:
        servers = json.loads((await self.ask("GET", "mcp/servers")).body)["servers"]
        return {server["name"]: server["state"] for server in servers}


@contextlib.contextmanager
def billing(port: int) -> Iterator[None]:
    environ = {**os.environ, "BILLING_TOKEN": "change-me"}
    command = [sys.executable, str(EXAMPLE / "billing.py"), str(port)]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield
        finally:
            process.kill()


def test_the_example_works_as_it_stands(tmp_path: Path) -> None:
    port = free_port()
    config = tmp_path / "trunkline.yaml"
    config.write_text((EXAMPLE / "trunkline.yaml").read_text().replace("8090", str(port)))
    environ = {**os.environ, "BILLING_TOKEN": "change-me", "HOME": str(tmp_path)}

    def call(*args: str) -> subprocess.CompletedProcess[str]:
        command = [TRUNKLINE, "call", "-c", str(config), *args]
        return subprocess.run(command, env=environ, capture_output=True, text=True, timeout=at_most(60))

    with billing(port):
        assert json.loads(call("billing_invoice", "customer=Ada", "amount:=12.5").stdout) == {"number": 1}
        assert json.loads(call("billing.show_invoice", "number:=1").stdout)["customer"] == "Ada"
        assert call("billing_total").stdout.strip() == "12.50"
        refused = call("billing_show_invoice", "number:=9")
        assert refused.returncode == 1 and "no invoice 9" in refused.stdout + refused.stderr
        traversal = call("billing_invoice", "customer=../x", "amount:=1")
        assert traversal.returncode == 1 and "TL315" in traversal.stderr


@pytest.mark.law
async def test_a_session_shows_the_token_that_was_handed_in_for_it_and_nobody_elses(tmp_path: Path) -> None:
    with (
        ServiceProcess(tmp_path, any=True) as service,
        Gateway(tmp_path, service.entry(tokens={}), operator_token=OPERATOR, log={"level": "debug"}) as gateway,
    ):
        api = Api(gateway)
        async with gateway.client() as ada, gateway.client() as bob:
            assert (await ada.call("svc_echo", {"text": "x"})).situation == NO_TOKEN
            assert not service.posts()
            for client, token in ((ada, "of-ada-0123456789"), (bob, "of-bob-0123456789")):
                reply = await api.ask("PUT", f"sessions/{client.session}/token", {"token": token})
                assert reply.status == 200, reply.body
                assert (await client.call("svc_echo", {"text": "x"})).text == "x"
                assert service.posts()[-1]["headers"]["authorization"] == f"Bearer {token}"
                assert service.calls()[-1]["session"] == json.loads(reply.body)["sessionId"]
            await api.ask("DELETE", f"sessions/{ada.session}/token")
            assert (await ada.call("svc_echo", {"text": "x"})).situation == NO_TOKEN
            written = service.journal.read_text()
            assert ada.session not in written and bob.session not in written
        assert "of-ada" not in gateway.log and "of-bob" not in gateway.log


@pytest.mark.law
async def test_what_was_kept_for_a_session_goes_with_its_token(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as service:
        entry = service.entry(tokens={}, cache={"assume_read_only": ["*"]})
        with Gateway(tmp_path, entry, operator_token=OPERATOR) as gateway:
            api = Api(gateway)
            async with gateway.client() as ada, gateway.client() as bob:
                for client in (ada, bob):
                    await api.ask("PUT", f"sessions/{client.session}/token", {"token": TOKEN})
                    for _ in range(2):
                        assert (await client.call("svc_echo", {"text": "x"})).text == "x"
                assert len(service.posts()) == 2
                await api.ask("DELETE", f"sessions/{ada.session}/token")
                assert (await ada.call("svc_echo", {"text": "x"})).situation == NO_TOKEN
                assert (await bob.call("svc_echo", {"text": "x"})).text == "x"
                assert len(service.posts()) == 2


async def test_a_service_registers_is_used_and_disappears_when_it_dies(tmp_path: Path) -> None:
    with ServiceProcess(tmp_path) as service, Gateway(tmp_path, operator_token=OPERATOR) as gateway:
        api = Api(gateway)
        body = {"endpoint": service.endpoint, "token": TOKEN, "lease": at_most(3)}
        async with gateway.client() as client:
            assert (await client.call("svc_echo", {"text": "x"})).failed
            assert (await api.ask("POST", "services/svc", body)).status == 201

            async def works() -> Answer | None:
                answer = await client.call("svc_echo", {"text": "x"})
                return None if answer.failed else answer

            answer = await until(works, "the service is used")
            assert answer is not None and answer.text == "x"
            assert (await api.ask("POST", "services/svc", body)).status == 200
            service.stop()  # and nobody renews the lease

            async def gone() -> bool:
                return "svc" not in await api.states()

            await until(gone, "the service is gone", 30)
            assert (await client.call("svc_echo", {"text": "x"})).situation == (-32602, "TL301", "no")


async def test_only_an_operator_registers_services_and_only_at_addresses(tmp_path: Path) -> None:
    with Gateway(tmp_path, operator_token=OPERATOR, token="a-clients-token") as gateway:
        api = Api(gateway)
        body = json.dumps({"endpoint": "http://127.0.0.1:9"}).encode()
        headers = {"Authorization": "Bearer a-clients-token", "Content-Type": "application/json"}
        for method, path in (
            ("POST", "/api/services/x"),
            ("DELETE", "/api/services/x"),
            ("PUT", "/api/sessions/x/token"),
        ):
            assert (await fetch(gateway.port, method, path, headers, body)).status == 401
        for endpoint in ("file:///etc/passwd", "unix:///run/docker.sock", "gopher://x", "http://u:p@h"):
            assert (await api.ask("POST", "services/x", {"endpoint": endpoint})).status == 422
        assert (await api.ask("POST", "services/trunkline", {"endpoint": "http://h"})).status == 422
        assert await api.states() == {}


@pytest.mark.parametrize("version", ["legacy", "modern"])
async def test_no_path_traversal_reaches_a_service_whoever_calls(tmp_path: Path, version: str) -> None:
    with ServiceProcess(tmp_path) as service, Gateway(tmp_path, service.entry()) as gateway:
        async with gateway.client() if version == "legacy" else gateway.modern() as client:
            for text in REFUSED[::5]:
                for arguments in ({"text": text}, {"deep": [{"x": {text: 1}}]}):
                    assert (await client.call("svc_echo", arguments)).situation == PATH_TRAVERSAL, ascii(text)
            assert not service.posts()
            assert (await client.call("svc_echo", {"text": "a..b"})).text == "a..b"
