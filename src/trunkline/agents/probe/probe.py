"""Starts an agent in intercept mode against a model of ours: the tools it offers there, it would offer anywhere."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from typing import Final, cast

from trunkline.agents.installed import Installed
from trunkline.agents.loose_json import entries, mapping, object_of
from trunkline.agents.probe.results import ProbeResult
from trunkline.agents.providers.provider import Provider, RunSpec
from trunkline.agents.runner import AgentResult, AgentRunner
from trunkline.core.errors import GatewayError
from trunkline.protocol.http1 import HttpRequest, RequestParser, response_head
from trunkline.protocol.http1_message import HttpLimits, HttpProblem
from trunkline.runtime.deadlines import wait_first

_PROBE_S: Final = 120.0
"""Gemini CLI may take most of a minute to start on a busy machine."""
_PROMPT: Final = "Say hello."


async def probe_agent(runner: AgentRunner, provider: Provider, installed: Installed, spec: RunSpec) -> ProbeResult:
    """Start the agent like `spec`, but with a prompt and a model of the probe. Nothing of it is left afterwards."""
    model = ProbeModel()
    await model.start()
    probe_spec = replace(spec, prompt=_PROMPT, instructions="", timeout_s=_PROBE_S, model_url=model.url)
    run = asyncio.get_running_loop().create_task(runner.run(provider, installed, probe_spec, None, lambda _: None))
    try:
        await wait_first([run, model.offered], _PROBE_S)
        if model.offered.done():
            offered = model.offered.result()
            own_tools = tuple(tool for tool in offered if not provider.is_ours(tool))
            if len(own_tools) == len(offered):
                return ProbeResult(failure="it did not offer our tools to its model")
            return ProbeResult(own_tools=own_tools)
        return ProbeResult(failure=_failure_of(run))
    finally:
        run.cancel()
        await asyncio.gather(run, return_exceptions=True)
        await model.close()


def _failure_of(run: asyncio.Task[AgentResult]) -> str:
    if not run.done():
        return f"it had not asked its model after {_PROBE_S:g} s"
    error = run.exception()
    if isinstance(error, GatewayError):
        return error.problem.message
    if error is not None:
        raise error
    problem = run.result().problem
    return "it ended without asking its model" if problem is None else problem.message


_LIMITS: Final = HttpLimits(header_bytes=65_536, body_bytes=16_777_216)
_REFUSAL: Final = b'{"type":"error","error":{"type":"invalid_request_error","message":"this was a trial","code":400}}'
_HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_REFUSAL))]


class ProbeModel:
    """Listens on loopback from `start` to `close`, and refuses every request. The agent fails by that, but its tools
    are known by then: `offered` gets those of the first request that has any."""

    def __init__(self) -> None:
        self.offered: asyncio.Future[tuple[str, ...]] = asyncio.get_running_loop().create_future()
        self._connections: set[_Connection] = set()
        self._server: asyncio.Server | None = None
        self.url = ""

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Connection(self, self._connections), "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def close(self) -> None:
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.abort()
        if not self.offered.done():
            self.offered.cancel()

    def on_request(self, request: HttpRequest) -> None:
        if (tools := tools_offered(request.body)) and not self.offered.done():
            self.offered.set_result(tools)


class _Connection(asyncio.Protocol):
    def __init__(self, model: ProbeModel, connections: set[_Connection]) -> None:
        self._model = model
        self._connections = connections
        self._parser = RequestParser(_LIMITS, self._on_request)
        self._transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is none by its type
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        self._parser.close()

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed(data)
        except HttpProblem:
            self.abort()

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _on_request(self, request: HttpRequest) -> None:
        self._model.on_request(request)
        if self._transport is not None:
            self._transport.write(response_head(400, _HEADERS) + _REFUSAL)


def tools_offered(body: bytes) -> tuple[str, ...]:
    """The names of the tools in the body of a request, for each of the APIs that agents speak. A tool in a namespace is
    `namespace/name`. A tool without a name is called by its type."""
    message = object_of(body)
    names = list(_names(message.get("tools"), ""))
    for item in entries(message.get("input")):  # for some models, tools are part of the conversation
        names += _names(item.get("tools"), "")
    return tuple(names)


def _names(tools: object, namespace: str) -> Iterator[str]:
    for tool in entries(tools):
        if "functionDeclarations" in tool or not tool.keys() & {"name", "type", "function"}:
            # Gemini's group: functions, beside types of tools whose key is their only name
            for kind, value in tool.items():
                functions = (
                    [kind] if kind != "functionDeclarations" else (one.get("name") for one in entries(value) if one)
                )
                yield from map(str, functions)
        elif tool.get("type") == "namespace":
            inside = f"{tool.get('name')}/"
            yield from list(_names(tool.get("tools"), inside)) or [inside]  # unreadable is not the same as empty
        else:
            named = mapping(tool.get("function")) or tool
            yield namespace + str(named.get("name") or tool.get("type"))
