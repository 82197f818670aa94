"""Probes an agent: starts it in intercept mode against a model of ours, which shows the tools that it offers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, cast

from trunkline.agents.installed_agent import InstalledAgent
from trunkline.agents.json_cache import JsonCache
from trunkline.agents.lenient_json import entries, mapping, object_of
from trunkline.agents.output_monitor import native_tool_problem
from trunkline.agents.providers import OWN_TOOLS_IN_DOUBT
from trunkline.agents.providers.provider import SERVER, Mode, Provider, RunSpec
from trunkline.agents.runner import AgentResult, AgentRunner
from trunkline.core.errors import ISOLATION_UNVERIFIED, PROXY_PROVIDER, GatewayError, Problem
from trunkline.protocol.http1 import HttpRequest, RequestParser, response_head
from trunkline.protocol.http1_message import HttpLimits, HttpProblem
from trunkline.runtime.deadlines import wait_first


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbeResult:
    """The agent's own tools that it offered its model. `failure` says why nothing could be found out."""

    own_tools: tuple[str, ...] = ()
    failure: str = ""

    @property
    def isolated(self) -> bool:
        return not self.own_tools and not self.failure


class ProbeStore:
    """The results of probes, in a folder of the state: a version is probed once."""

    def __init__(self, folder: Path) -> None:
        self._file = JsonCache[list[str]](folder, "agent_probes.json", list[str])

    def get(self, provider: str, version: str) -> ProbeResult | None:
        tools = self._file.read().get(f"{provider} {version}")
        return None if tools is None else ProbeResult(own_tools=tuple(tools))

    def put(self, provider: str, version: str, result: ProbeResult) -> None:
        """Keep a result, unless the probe failed."""
        if not result.failure:
            self._file.put(f"{provider} {version}", list(result.own_tools))


MITIGATION: Final = (
    f"Use only the tools of the MCP server `{SERVER}`. "
    "Never use built-in tools, whatever else you were told about them."
)
_HINT: Final = "install the verified version where isolation must be certain"

Probe = Callable[[], Awaitable[ProbeResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Isolation:
    """How far an agent is isolated. `mitigation` is told to the agent; it is empty if no tool of its own is left."""

    warnings: tuple[Problem, ...] = ()
    mitigation: str = ""


async def check_isolation(
    provider: Provider, installed: InstalledAgent, mode: Mode, store: ProbeStore, probe: Probe, *, model: str = ""
) -> Isolation:
    """Check an isolated agent; an unverified version is probed once for each model, as some tools depend on it. Raises
    GatewayError if the probe has shown tools of the agent's own, as nothing would hold those back."""
    name, version = provider.name, installed.version
    if mode != "intercept" or version in provider.verified:
        return Isolation()
    setup = f"{version} {model}".rstrip()
    result = store.get(name, setup)
    if result is None:
        result = await probe()
        store.put(name, setup, result)
    if result.own_tools:
        what = f"{version}, probed because isolation was verified with {_verified(provider)}, offered"
        raise GatewayError(native_tool_problem(name, what, result.own_tools))
    if result.isolated:
        what = "it offered its model no tool that bypasses ours"
        return Isolation(warnings=(_unverified(provider, version, what),))
    return Isolation(warnings=(_unknown(provider, version, result.failure),), mitigation=MITIGATION)


def _unverified(provider: Provider, version: str, what: str) -> Problem:
    message = (
        f"Isolation of {provider.name} was verified with {_verified(provider)}; the installed {version} was probed: "
        f"{what}"
    )
    return Problem(code=ISOLATION_UNVERIFIED, message=message, severity="warning", hint=_HINT)


def _unknown(provider: Provider, version: str, why: str) -> Problem:
    if provider.name not in OWN_TOOLS_IN_DOUBT:
        return _unverified(provider, version, f"without a result: {why}")
    # The first sentence is the one that the workflow format documents.
    message = (
        f"mcp_proxy on provider={provider.name} runs in coexistence mode. Isolation was verified with "
        f"{_verified(provider)}; it is not known whether all built-in tools of the installed {version} are disabled "
        f"({why}), and those that are not may bypass the proxy. Use 'claude' or 'openai-compatible' for guaranteed "
        "MCP-only isolation."
    )
    return Problem(code=PROXY_PROVIDER, message=message, severity="warning", hint=_HINT)


def _verified(provider: Provider) -> str:
    return " and ".join(sorted(provider.verified))


_PROBE_S: Final = 120.0
"""Gemini CLI may take most of a minute to start on a busy machine."""
_PROMPT: Final = "Say hello."


async def probe_agent(runner: AgentRunner, provider: Provider, installed: InstalledAgent, spec: RunSpec) -> ProbeResult:
    """Start the agent like `spec`, but with a prompt and a model of the probe. Nothing of it is left afterwards."""
    model = FakeModelServer()
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
_REFUSAL: Final = b'{"type":"error","error":{"type":"invalid_request_error","message":"this was a probe","code":400}}'
_HEADERS: Final = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(_REFUSAL))]


class FakeModelServer:
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
    def __init__(self, model: FakeModelServer, connections: set[_Connection]) -> None:
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
