"""The way from an agent to its gateway: a private socket, and the program that the agent starts to reach it."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from trunkline.agents.plan import ToolServer
from trunkline.agents.runs.step_gateway import StepGateway
from trunkline.frontends.stdio.private_socket import CutOff, PrivateDoor
from trunkline.runtime.pump import serve_command

_SOCKET: Final = "s"
_CONFIG: Final = "serve.json"


class AgentDoor:
    """In `folder`, which is private and stays as long as this does. It is also the witness of what the agent does:
    `listed` says whether it asked for its tools. Texts over `result_chars` would not reach its model whole."""

    def __init__(self, gateway: StepGateway, folder: Path, *, result_chars: int) -> None:
        limits = gateway.settings.gateway.limits
        self._call_s = limits.call_seconds
        self._folder = folder
        self._door = PrivateDoor(
            gateway.router,
            gateway.discovery,
            path=folder / _SOCKET,
            caller=gateway.caller,
            limit_bytes=limits.request_bytes,
            max_calls=limits.in_flight_per_client,
            question_s=limits.server_request_seconds,
            result_chars=result_chars,
        )

    @property
    def listed(self) -> bool:
        return self._door.listed

    @property
    def cut_off(self) -> CutOff:
        """Calls that were under way when the agent's tool server was gone all at once."""
        return self._door.cut_off

    def when_listed(self, then: Callable[[], None]) -> None:
        """Do this once the agent asks for its tools."""
        self._door.on_listed = then

    async def open(self) -> ToolServer:
        """What the agent has to start."""
        await self._door.start()
        config = self._folder / _CONFIG
        with os.fdopen(os.open(config, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600), "wb") as file:
            file.write(msgspec.json.encode({"socket": str(self._folder / _SOCKET)}))
        command, args = serve_command(config)
        return ToolServer(command=command, args=args, call_s=self._call_s)

    async def close(self) -> None:
        await self._door.close()
