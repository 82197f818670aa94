"""One registration at the gateway: from the first `register` to the end of the connection."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from .calls import Calls, Slots
from .errors import Refused
from .link import Link, TooLong
from .tool import Tool

ACKNOWLEDGE_DEADLINE_S: Final = 10.0
log = logging.getLogger(__package__)


@dataclass(frozen=True)
class Identity:
    """What an app says of itself. The credential lets it take its own place again when a connection broke."""

    app_name: str
    credential: str
    token: str | None = None

    def registered_name(self, tool: str) -> str:
        return f"{self.app_name}:{tool}"

    def registration(self, tools: Mapping[str, Tool]) -> dict[str, Any]:
        message: dict[str, Any] = {
            "type": "register",
            "appName": self.app_name,
            "tools": [tool.definition(self.registered_name(name)) for name, tool in tools.items()],
            "credential": self.credential,
            "acknowledge": True,
        }
        return message | ({"token": self.token} if self.token else {})


class Session:
    def __init__(
        self,
        link: Link,
        slots: Slots,
        identity: Identity,
        tools: Callable[[], Mapping[str, Tool]],
        registered: Callable[[str], None],
    ) -> None:
        self._link = link
        self._calls = Calls(link, slots)
        self._identity = identity
        self._tools = tools
        self._registered = registered
        self._told: Mapping[str, Tool] = {}
        self._ended = False
        self._by_registered_name: dict[str, Tool] = {}
        self._loop = asyncio.get_running_loop()
        self._unanswered: asyncio.TimerHandle | None = None
        self._handlers: dict[Any, Callable[[dict[str, Any]], None]] = {
            "registered": self._on_registered,
            "refused": self._on_refused,
            "toolInvocation": self._on_invocation,
            "toolCancel": self._on_cancel,
        }

    async def run(self) -> None:
        """Returns when the gateway is gone; raises Refused when it does not want us."""
        try:
            self._register()
            async with contextlib.aclosing(self._link.messages()) as messages:
                async for message in messages:
                    self._take(message)
        finally:
            self._ended = True
            self._answered()
            await self._calls.close()
            await self._link.close()

    def _take(self, message: dict[str, Any]) -> None:
        kind = message.get("type")
        handler = self._handlers.get(kind) if isinstance(kind, str) else None
        (handler or self._on_other)(message)

    def register_if_changed(self) -> None:
        """Many changes at once are told once."""
        if self._tools() is not self._told and not self._ended:
            self._register()

    def _register(self) -> None:
        """Say what we offer; said again, it replaces what was said before."""
        self._told = self._tools()
        self._by_registered_name = {self._identity.registered_name(name): tool for name, tool in self._told.items()}
        try:
            self._link.post(self._identity.registration(self._told))
        except TooLong as error:
            log.error("The description of the tools %s: the gateway is not told of them", error)
        self._answered()
        self._unanswered = self._loop.call_later(ACKNOWLEDGE_DEADLINE_S, self._on_silence)

    def _answered(self) -> None:
        if self._unanswered is not None:
            self._unanswered.cancel()
            self._unanswered = None

    def _on_silence(self) -> None:
        log.warning("The gateway has not said whether it took `%s`; going on", self._identity.app_name)

    def _on_registered(self, message: dict[str, Any]) -> None:
        self._answered()
        for warning in message.get("warnings") or ():
            log.warning("The gateway says: %s", warning)
        self._registered(str(message.get("server") or self._identity.app_name))

    def _on_refused(self, message: dict[str, Any]) -> None:
        raise Refused(str(message.get("code") or ""), str(message.get("message") or "it gave no reason"))

    def _on_invocation(self, message: dict[str, Any]) -> None:
        correlation_id, name = message.get("correlationId"), message.get("tool")
        if not isinstance(correlation_id, int | str):
            log.warning("The gateway sent an invocation without a correlation id")
        elif tool := self._by_registered_name.get(str(name)):
            self._calls.start(tool, correlation_id, message.get("parameters"))
        else:
            self._calls.fail(correlation_id, f"`{self._identity.app_name}` has no tool `{name}`")

    def _on_cancel(self, message: dict[str, Any]) -> None:
        self._calls.cancel(message.get("correlationId"))

    def _on_other(self, message: dict[str, Any]) -> None:
        log.debug("The gateway sent a message of a type that is not known here: %r", message.get("type"))
