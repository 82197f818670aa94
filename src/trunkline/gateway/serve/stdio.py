"""`trunkline stdio` without a gateway to join: a gateway for one client."""

from __future__ import annotations

from trunkline.config.settings import Settings
from trunkline.frontends.stdio.stdio import StdioDoor
from trunkline.gateway.operations import Load
from trunkline.gateway.serve.running import running_gateway, settle_memory


async def serve_stdio(settings: Settings, load: Load) -> int:
    """`trunkline stdio`."""
    async with running_gateway(settings, load, transport="pipe") as running:
        running.events.note("info", "started", "Serving one client", config=str(settings.path.absolute()))
        running.start()
        door = StdioDoor(running.mcp, limit_bytes=settings.gateway.limits.request_bytes)
        running.stopping.add_done_callback(lambda _: door.stop())
        settle_memory()
        await door.serve()
        return running.stopping.result() if running.stopping.done() else 0
