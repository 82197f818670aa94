"""How a conversation with a server begins: which era it speaks, which version, and what it says of itself."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

import msgspec

from trunkline.core.call import Failure, Outcome, RemoteError, Result
from trunkline.core.errors import SOURCE_AUTH_REQUIRED, SOURCE_PROTOCOL, SOURCE_START_FAILED, GatewayError, Problem
from trunkline.protocol.jsonrpc import BadMessage, members_of
from trunkline.protocol.mcp.capabilities import TASKS, extensions
from trunkline.protocol.mcp.methods import INITIALIZED
from trunkline.protocol.mcp.modern import SERVER_INFO
from trunkline.protocol.mcp.versions import LATEST_MODERN, LEGACY, Era, ServerHello, decode_hello, initialize_params
from trunkline.runtime.deadlines import Within, first_of
from trunkline.sources.mcp.http_lane import HttpLane
from trunkline.sources.mcp.lane import Lane
from trunkline.sources.mcp.per_caller import CLIENT_NAME, LaneLevel, Stamps, own_stamp
from trunkline.version import __version__

_PROBE_S: Final = 3.0
_VERSION_NOT_SERVED: Final = -32022


@dataclass(frozen=True, slots=True)
class Session:
    """A lane whose handshake is done."""

    lane: Lane
    era: Era
    hello: ServerHello


async def shake_hands(lane: Lane, known_era: Era | None, capabilities: bytes, timeout_s: float) -> Session:
    """Probe for the modern era, fall back to `initialize`; a server whose era is known is not probed again."""
    try:
        async with Within(timeout_s):
            if known_era == "modern":
                return _modern(lane, await _discover(lane, timeout_s))
            if known_era == "legacy":
                return await _initialize(lane, capabilities, timeout_s)
            return await _probe(lane, capabilities, timeout_s)
    except TimeoutError:
        problem = lane.problem(SOURCE_START_FAILED, f"no handshake within {timeout_s:g} seconds")
        raise GatewayError(problem) from None


async def _probe(lane: Lane, capabilities: bytes, timeout_s: float) -> Session:
    """Some servers never answer what they do not know, and some take long to start: so after a while `initialize`
    goes out too, and the first of the two to be answered well decides."""
    probe = asyncio.ensure_future(_discover(lane, timeout_s))
    try:
        await first_of([probe], _PROBE_S)
        if probe.done():
            outcome = probe.result()
            if _is_modern(outcome):
                return _modern(lane, outcome)
            _stop_if_hopeless(lane, outcome)
            return await _initialize(lane, capabilities, timeout_s)
        return await _first_of(lane, probe, capabilities, timeout_s)
    finally:
        probe.cancel()
        await asyncio.wait([probe])


async def _first_of(lane: Lane, probe: asyncio.Future[Outcome], capabilities: bytes, timeout_s: float) -> Session:
    """A server that was only slow answers both, and one that took the probe for the opening refuses `initialize`:
    so a good answer to the probe decides even when the other one is there already."""
    greeting = asyncio.ensure_future(_initialize(lane, capabilities, timeout_s))
    try:
        await asyncio.wait([probe, greeting], return_when=asyncio.FIRST_COMPLETED)
        if greeting.done() and greeting.exception() is not None:
            await first_of([probe], _PROBE_S)
        if probe.done() and _is_modern(probe.result()):
            return _modern(lane, probe.result())
        return await greeting
    finally:
        greeting.cancel()
        await asyncio.wait([greeting])


async def _discover(lane: Lane, timeout_s: float) -> Outcome:
    """Once more if it refuses the version and names the very same as one that it serves."""
    _speak(lane, LATEST_MODERN, modern=True)
    outcome = await lane.ask("server/discover", b"{}", timeout_s)
    if isinstance(outcome, RemoteError) and LATEST_MODERN in _offered(outcome):
        outcome = await lane.ask("server/discover", b"{}", timeout_s)
    return outcome


def _is_modern(outcome: Outcome) -> bool:
    if not isinstance(outcome, Result):
        return False
    try:
        return LATEST_MODERN in decode_hello(outcome.raw).supported_versions
    except msgspec.MsgspecError:
        return False


def _modern(lane: Lane, outcome: Outcome) -> Session:
    raw = lane.result_of(outcome)
    if not _is_modern(outcome):
        raise GatewayError(lane.problem(SOURCE_PROTOCOL, f"does not serve protocol version {LATEST_MODERN}"))
    _speak(lane, LATEST_MODERN, modern=True)
    lane.questions.declared = b"{}"  # servers of this era put their questions into results
    hello = decode_hello(raw)
    lane.has_tasks = TASKS in extensions(bytes(hello.capabilities))
    lane.prepare = Stamps(logs="logging" in hello.capability_names(), tasks=lane.has_tasks)
    hello.protocol_version = LATEST_MODERN
    hello.server_info = _server_info(raw)
    return Session(lane, "modern", hello)


def _server_info(raw: bytes) -> msgspec.Raw:
    """What the server calls itself, in its `_meta`. Nothing depends on it, so nothing fails for it."""
    try:
        meta = members_of(raw, "result").get("_meta", msgspec.Raw(b"{}"))
        return members_of(meta, "`_meta`").get(SERVER_INFO, msgspec.Raw(b"{}"))
    except BadMessage:
        return msgspec.Raw(b"{}")


def _stop_if_hopeless(lane: Lane, outcome: Outcome) -> None:
    """A dead wire, a login, or a server that names only versions we do not speak: `initialize` would not help."""
    if isinstance(outcome, Failure) and (lane.lost.done() or outcome.problem.code in _HOPELESS):
        raise GatewayError(outcome.problem)
    if isinstance(outcome, RemoteError) and not (_offered(outcome) & set(LEGACY)) and _offered(outcome):
        versions = ", ".join(sorted(_offered(outcome)))
        raise GatewayError(lane.problem(SOURCE_PROTOCOL, f"serves only protocol versions {versions}"))


_HOPELESS: Final = (SOURCE_AUTH_REQUIRED, SOURCE_START_FAILED)


class _Offer(msgspec.Struct):
    supported: list[str]


class _VersionError(msgspec.Struct):
    code: int
    data: _Offer


def _offered(error: RemoteError) -> set[str]:
    try:
        refusal = msgspec.json.decode(error.raw, type=_VersionError)
    except msgspec.MsgspecError:
        return set()
    return set(refusal.data.supported) if refusal.code == _VERSION_NOT_SERVED else set()


async def _initialize(lane: Lane, capabilities: bytes, timeout_s: float) -> Session:
    _speak(lane, "", modern=False)
    lane.questions.declared = capabilities
    params = initialize_params(CLIENT_NAME, __version__, capabilities)
    outcome = await lane.ask("initialize", params, timeout_s)
    try:
        hello = decode_hello(lane.result_of(outcome))
    except msgspec.MsgspecError as error:
        raise GatewayError(lane.problem(SOURCE_PROTOCOL, f"its `initialize` result is not valid: {error}")) from None
    except GatewayError as error:
        raise GatewayError(_named(lane, error.problem)) from None
    if hello.protocol_version not in LEGACY:
        reason = f"answered with protocol version `{hello.protocol_version}`, which is not served"
        raise GatewayError(lane.problem(SOURCE_PROTOCOL, reason))
    _speak(lane, hello.protocol_version, modern=False)
    if "logging" in hello.capability_names():
        lane.prepare = LaneLevel(lane)
    lane.notify(INITIALIZED)
    return Session(lane, "legacy", hello)


def _named(lane: Lane, problem: Problem) -> Problem:
    return problem if problem.source else lane.problem(problem.code, f"`initialize` was {problem.message}")


def _speak(lane: Lane, version: str, *, modern: bool) -> None:
    lane.modern = modern
    lane.stamp = own_stamp() if modern else b""
    lane.prepare = None
    if isinstance(lane, HttpLane):
        lane.speak(version, modern=modern)
