"""Running a relay until its client leaves: the limits, the log, the signals, the exit status."""

from __future__ import annotations

import asyncio
import os
import signal
from typing import Any, Final, cast

from trunkline.config.gateway import GatewaySettings
from trunkline.config.secret_values import secrets_in
from trunkline.config.settings import Settings
from trunkline.core.errors import BAD_VALUE, GatewayError, Problem
from trunkline.core.events import Events, Level
from trunkline.frontends.relay.link import GatewayLink, shown
from trunkline.frontends.relay.relay import Relay
from trunkline.protocol.http1 import request_head
from trunkline.runtime.http_client import Target
from trunkline.runtime.own_process import heeded, keep_large_buffers
from trunkline.telemetry.logs import CallLog, LogFormat
from trunkline.telemetry.redact import Redactor

INTERRUPTED: Final = 130
NEVER_SERVED: Final = 1
_MANY: Final = 1024
_BESIDE_CALLS: Final = 64
"""Requests in flight beyond the calls that the gateway allows: lists and subscriptions are not calls."""
_LISTS: Final = 4
"""A list of all servers' tools may be larger than any one message of theirs."""


async def attach(target: Target, *, token: str = "", settings: Settings | None = None, how: str = "") -> int:
    """`trunkline stdio` as a client's way into a gateway that runs; the exit status.

    `settings` are those of the gateway where they are known; `how` is added to the line that says so.
    A gateway that cannot be reached is no reason to end: the client is told by the answer to its first request, which
    it shows to people, while it shows neither what stands on stderr nor why a program ended.
    """
    check_target(target, token)
    running = _Attached(target, token, settings)
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(running.stray_error)
    for number in heeded(signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.stop, number)
    loop.add_signal_handler(signal.SIGHUP, running.hang_up)
    keep_large_buffers()
    running.events.note("info", "attached", f"Relaying to the gateway at {running.link.where}{how}")
    try:
        await running.relay.serve()
    finally:
        running.log.close()
    if running.status is not None:
        return running.status
    return 0 if running.link.served or not running.relay.asked else NEVER_SERVED


class _Attached:
    def __init__(self, target: Target, token: str, settings: Settings | None) -> None:
        gateway = GatewaySettings() if settings is None else settings.gateway
        limits = gateway.limits
        # a gateway whose settings are not known here says by itself what is too much for it
        limit_bytes = limits.message_bytes if settings is None else limits.request_bytes
        max_in_flight = (_MANY if settings is None else limits.in_flight_per_client) + _BESIDE_CALLS
        self.status: int | None = None
        self.events = Events()
        self.log = CallLog(
            level=cast(Level, gateway.log.level),
            format=cast(LogFormat, gateway.log.format),
            redactor=Redactor(secrets_in("token", token)),
        )
        self.log.attach(self.events)
        self.link = GatewayLink(
            target,
            token=token,
            limit_bytes=_LISTS * limits.message_bytes,
            max_in_flight=max_in_flight,
            events=self.events,
        )
        self.relay = Relay(self.link, self.events, limit_bytes=limit_bytes, max_in_flight=max_in_flight)

    def stray_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Nothing should get here; what does is logged in one line, and the relay goes on."""
        error = context.get("exception")
        detail = f"{type(error).__name__}: {error}" if error is not None else ""
        self.events.note("error", "internal", f"{context.get('message', 'stray error')} {detail}".strip())

    def stop(self, number: int) -> None:
        """A first signal asks for an orderly end; one more ends it at once."""
        if self.status is not None:
            os._exit(INTERRUPTED)
        self.status = INTERRUPTED if number == signal.SIGINT else 0
        self.relay.stop()

    def hang_up(self) -> None:
        """A client that is gone closes our input too; and there is nothing here to load again."""
        self.events.note("info", "no_reload", "SIGHUP: the gateway, not this relay, has a configuration to load again")


def check_target(target: Target, token: str) -> None:
    """Raises GatewayError for what cannot be written into a request."""
    try:
        request_head(b"POST", target.path, [(b"host", target.authority)])
    except ValueError:
        raise GatewayError(Problem(code=BAD_VALUE, message=f"{shown(target)} is not an address of a gateway")) from None
    if not (token.isascii() and token.isprintable() and " " not in token):
        raise GatewayError(Problem(code=BAD_VALUE, message="The token for the gateway is not one word of plain ASCII"))
