"""Servers that repeat the secrets they were given: nobody else sees them, however they were passed or printed."""

from __future__ import annotations

import asyncio
import base64
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.commands import trunkline
from tests.support.gateway import Gateway, write_config
from tests.support.http_wire import fetch
from tests.support.waiting import START_WAIT_S, until

pytestmark = pytest.mark.law

PROGRAM = str(Path(__file__).parents[1] / "support" / "repeating_server.py")
OPERATOR = "operators-c4n4ry-token"
PLAIN = {"MODE_NAME": "production", "WORK_DIR": "/var/lib/work", "OUTPUT_FORMAT": "json-lines-v2", "RETRY": "yes"}


class Canaries:
    """Secrets of our own making, each by the place that it was put into."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.environ: dict[str, str] = {}

    def at(self, place: str) -> str:
        return self.values.setdefault(place, f"c4n4ry/{len(self.values):03}+{sha256(place.encode()).hexdigest()[:12]}")

    def variable(self, place: str, name: str) -> str:
        self.environ[name] = self.at(place)
        return f"${{{name}}}"

    def found_in(self, text: str) -> set[str]:
        """The places of those that a text shows, in any spelling."""
        return {place for place, value in self.values.items() if any(form in text for form in spellings(value))}


def spellings(value: str) -> tuple[str, ...]:
    return value, quote(value, safe=""), json.dumps(value)[1:-1], base64.b64encode(value.encode()).decode().rstrip("=")


def program_keys(canaries: Canaries, name: str, mode: str) -> dict[str, Any]:
    """A program with a secret in every place that takes one."""
    at = canaries.at
    canaries.environ[f"{name}_listed"] = at(f"{name} inherit_env by name")
    args = [PROGRAM, mode, "--token", at(f"{name} args after its option"), f"--api-key={at(f'{name} args with =')}"]
    args += [
        "-e",
        f"DB_PASSWORD={at(f'{name} args as variable')}",
        canaries.variable(f"{name} args ref", f"{name}_REF"),
    ]
    args += ["--header", f"Authorization: Bearer {at(f'{name} args as header')}"]
    args += [f"postgres://me:{quote(at(f'{name} args in url'), safe='')}@db/x"]
    env = {
        "SERVICE_TOKEN": at(f"{name} env by name"),
        "WHATEVER": canaries.variable(f"{name} env ref", f"{name}_ENV"),
        "HEADERS": json.dumps({"Authorization": f"Bearer {at(f'{name} env as json')}"}),
        **PLAIN,
    }
    return {"command": sys.executable, "args": args, "env": env, "inherit_env": [f"{name}_listed"]}


def programs(canaries: Canaries) -> dict[str, dict[str, Any]]:
    stdio, plugin = ("exit", "refuse", "serve"), ("break", "plugin")
    entries = {f"{mode}s": {"kind": "mcp_stdio", **program_keys(canaries, f"{mode}s", mode)} for mode in stdio}
    entries |= {f"{mode}s": {"kind": "plugin", **program_keys(canaries, f"{mode}s", mode)} for mode in plugin}
    entries["breaks"]["config"] = {"login": {"password": canaries.at("breaks config")}}
    canaries.environ["inherited_TOKEN"] = canaries.at("all of the environment, by name")
    canaries.environ["INHERITED"] = canaries.at("all of the environment, by look")
    entries["inherits"] = {
        "kind": "mcp_stdio",
        "command": sys.executable,
        "args": [PROGRAM, "exit"],
        "inherit_env": "all",
    }
    return entries


def over_http(canaries: Canaries, port: int) -> dict[str, dict[str, Any]]:
    at, place = canaries.at, f"http://127.0.0.1:{port}"
    query = quote(at("url query"), safe="")
    in_url, in_endpoint = canaries.variable("url path", "URL_PATH"), canaries.variable("endpoint path", "ENDPOINT")
    headers = {"X-Api-Key": at("header by name"), "X-Other": canaries.variable("header ref", "HEADER")}
    return {
        "web": {"kind": "mcp_http", "url": f"{place}/{in_url}/mcp?mode=plain&k={query}", "headers": headers},
        "service": {
            "kind": "service",
            "endpoint": f"{place}/{in_endpoint}",
            "tokens": {"*": at("token of a service")},
            "declare": [{"name": "crash"}],
        },
    }


@asynccontextmanager
async def echo() -> AsyncIterator[int]:
    """A server that answers every request with an error, and repeats the request in it."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        head_text = "".join(
            f"{line}\n" for line in head.splitlines() if not line.lower().startswith(("host", "accept"))
        )
        status = "200 OK" if "/tools/execute" in head else "500 No"
        body = json.dumps({"said": head_text}).encode() if "Json" in head else head_text.encode()
        writer.write(f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\nconnection: close\r\n\r\n".encode() + body)
        await writer.drain()
        writer.close()
        await writer.wait_closed()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


def exported(canaries: Canaries) -> str:
    return "; ".join(f"export {name}='{value}'" for name, value in canaries.environ.items())


class Operator:
    def __init__(self, gateway: Gateway) -> None:
        self._port = gateway.port
        self._headers = {"Authorization": f"Bearer {OPERATOR}", "Content-Type": "application/json"}

    async def ask(self, method: str, path: str, body: object = None) -> str:
        data = None if body is None else json.dumps(body).encode()
        reply = await fetch(self._port, method, path, self._headers, data)
        assert reply.status < 300, reply.body
        return reply.body.decode()

    async def states(self) -> dict[str, str]:
        listed = json.loads(await self.ask("GET", "/api/mcp/servers"))
        return {server["name"]: server["state"] for server in listed["servers"]}


async def test_what_servers_repeat_is_hidden_on_every_way_out(tmp_path: Path) -> None:
    canaries = Canaries()
    spans = tmp_path / "spans.jsonl"
    telemetry = {"exporter": "file", "endpoint": str(spans)}
    async with echo() as port:
        sources = programs(canaries) | over_http(canaries, port)
        gateway = Gateway(
            tmp_path,
            sources,
            prelude=exported(canaries),
            meta_tools=True,
            operator_token=OPERATOR,
            start_wait=START_WAIT_S,
            telemetry=telemetry,
            log={"level": "debug"},
        )
        with_env_file(gateway.config, canaries)
        gateway.start()
        try:
            shown = await everything_shown(gateway, canaries, port)
        finally:
            gateway.stop()
        shown |= {"the log": gateway.log, "spans": spans.read_text()}
    assert {way: places for way, text in shown.items() if (places := canaries.found_in(text))} == {}
    assert "cannot log in" in shown["the log"] and "***" in shown["the log"]
    assert all(OPERATOR not in text for text in shown.values())


def with_env_file(config: Path, canaries: Canaries) -> None:
    """An entry as clients write it, with a file of variables."""
    (config.parent / "more.env").write_text(f"PLAINLY_NAMED={canaries.at('envFile')}\n")
    document = json.loads(config.read_text())
    entry = {"command": sys.executable, "args": [PROGRAM, "exit"], "envFile": "more.env"}
    config.write_text(json.dumps({**document, "mcpServers": {"filed": entry}}))


def late_server(canaries: Canaries, port: int) -> dict[str, Any]:
    url = f"http://127.0.0.1:{port}/late/mcp?api_key={quote(canaries.at('url of an added server'), safe='')}"
    return {"name": "late", "url": url, "headers": {"X-Auth-Token": canaries.at("header of an added server")}}


def lent_service(canaries: Canaries, port: int) -> dict[str, Any]:
    """What it brings with it is known for as long as it stays."""
    key = canaries.values.setdefault("endpoint of a registered service", "c4n4ry-5c1e7a9f3b2d-lent")
    token = canaries.at("token of a registered service")
    return {"endpoint": f"http://127.0.0.1:{port}/{key}", "token": token, "tools": [{"name": "crash"}]}


async def everything_shown(gateway: Gateway, canaries: Canaries, port: int) -> dict[str, str]:
    operator = Operator(gateway)
    shown = {
        "adding a server": await operator.ask("POST", "/api/mcp/servers", late_server(canaries, port)),
        "registering a service": await operator.ask("POST", "/api/services/lent", lent_service(canaries, port)),
    }

    async def settled() -> dict[str, str] | None:
        states = await operator.states()
        return None if "starting" in states.values() else states

    states = await until(settled, "every server is up or has failed")
    assert states is not None
    async with gateway.client() as client:
        called = [(await client.call(f"{name}_crash")).raw for name in states]
        health = [(await client.call("trunkline_server_health", {"server": name})).raw for name in states]
        shown["answers to calls"] = b"\n".join(called).decode()
        shown["server_health"] = b"\n".join(health).decode()
        assert shown["answers to calls"].count("TL") >= len(states)
        assert "cannot log in" in shown["answers to calls"] and "cannot log in" in shown["server_health"]
        greeting = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}}
        shown["instructions"] = (await client.request("initialize", greeting)).raw.decode()
    shown["the operator's list"] = await operator.ask("GET", "/api/mcp/servers")
    shown["the page"] = await operator.ask("GET", "/")
    return shown | await by_commands(gateway.config, canaries)


async def by_commands(config: Path, canaries: Canaries) -> dict[str, str]:
    """What commands print, of a gateway that runs or of one for the moment."""
    commands = {"servers": ["-c", str(config)], "servers --json": ["-c", str(config)], "check": [str(config)]}
    shown: dict[str, str] = {}
    for command, where in commands.items():
        done = await asyncio.to_thread(trunkline, *command.split(), *where, cwd=config.parent, env=canaries.environ)
        shown[f"trunkline {command}"] = done.stdout + done.stderr
    return shown


async def test_a_gateway_for_the_moment_hides_them_too(tmp_path: Path) -> None:
    canaries = Canaries()
    config = write_config(
        tmp_path, {name: keys for name, keys in programs(canaries).items() if name in ("exits", "serves")}
    )
    shown = await by_commands(config, canaries)
    done = await asyncio.to_thread(
        trunkline, "call", "serves_crash", "-c", str(config), cwd=tmp_path, env=canaries.environ
    )
    shown["trunkline call"] = done.stdout + done.stderr
    assert {way: places for way, text in shown.items() if (places := canaries.found_in(text))} == {}
    assert "cannot log in" in shown["trunkline servers --json"] and "cannot log in" in shown["trunkline call"]


async def test_plain_values_stay_readable(tmp_path: Path) -> None:
    keys = {"command": sys.executable, "args": [PROGRAM, "exit", "--verbose"], "env": PLAIN, "inherit_env": ["HOME"]}
    with Gateway(tmp_path, {"plain": {"kind": "mcp_stdio", **keys}}) as gateway:
        await until(lambda: "cannot log in" in gateway.log, "the server's last words are in the log")
        assert {value for value in PLAIN.values() if value not in gateway.log} == set()
        assert "***" not in gateway.log
