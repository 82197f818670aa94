"""Who of one client's `subscriptions/listen` wants to know that the tools changed (2026-07-28)."""

from __future__ import annotations

import asyncio
from typing import Any, cast

from trunkline.mcpserver.messages import INVALID_PARAMS, Json, Message, MessageId, RpcError, notification
from trunkline.mcpserver.outgoing import Outgoing
from trunkline.mcpserver.versions import SUBSCRIPTION_ID


class Subscriptions:
    def __init__(self, out: Outgoing) -> None:
        self._out = out
        self._wanted_by: set[MessageId] = set()
        self._over = asyncio.Event()

    async def hold(self, message: Message) -> Json:
        """Until it is cancelled, or the client ends its side."""
        wanted: Any = message.params.get("notifications")
        if not isinstance(wanted, dict) or message.id is None:
            raise RpcError(INVALID_PARAMS, "`notifications` must be an object")
        tools = cast(Json, wanted).get("toolsListChanged") is True
        honoured = {"toolsListChanged": True} if tools else {}
        self._tell(message.id, "notifications/subscriptions/acknowledged", {"notifications": honoured})
        if tools:
            self._wanted_by.add(message.id)
        try:
            await self._over.wait()
        finally:
            self._wanted_by.discard(message.id)
        return {SUBSCRIPTION_ID: message.id}

    def end(self) -> None:
        """No more is told: every subscription is answered."""
        self._over.set()

    def tools_changed(self) -> None:
        for subscription in self._wanted_by:
            self._tell(subscription, "notifications/tools/list_changed", {})

    def _tell(self, subscription: MessageId, method: str, params: Json) -> None:
        self._out.tell(notification(method, {**params, "_meta": {SUBSCRIPTION_ID: subscription}}))
