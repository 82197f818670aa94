"""Plugins started for a moment, all at once, to learn which operations they have."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from trunkline.config.gateway import GatewaySettings, SearchSettings
from trunkline.config.settings import Settings
from trunkline.config.sources import SourceSection, ToolSelection
from trunkline.core.events import Events
from trunkline.core.source import Health
from trunkline.gateway.gateway import Gateway
from trunkline.runtime.overdue import Within
from trunkline.runtime.private_folder import PrivateFolder

START_S: Final = 20.0
_PREFIX: Final = "trunkline-v-"
_SPARE_S: Final = 2.0
"""Over what a plugin may take by its own settings, so that it says itself what is wrong."""
_UP: Final = ("ready", "degraded")


@dataclass(frozen=True, slots=True, kw_only=True)
class Probed:
    """`operations` can become tools, `warnings` are about those that cannot. With `trouble` it could not be asked."""

    operations: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    trouble: str = ""
    hint: str = ""


async def probe_plugins(
    sections: Mapping[str, SourceSection],
    path: Path,
    *,
    environ: Mapping[str, str],
    redact: Callable[[str], str] = str,
    start_s: float = START_S,
) -> dict[str, Probed]:
    """What each of them offers. `path` is the file it is for. On return none of them is left running."""
    scratch = PrivateFolder(_PREFIX)
    try:
        # nothing of an earlier start is believed, and nothing of this one is kept
        gateway_settings = GatewaySettings(
            state_dir=scratch.path, meta_tools=False, search=SearchSettings(semantic=False)
        )
        started = {name: _for_a_moment(section, start_s) for name, section in sections.items()}
        events = Events()
        gateway = Gateway(Settings(path, gateway_settings, started), events, environ=environ, redact=redact)
        try:
            heard = await _heard(gateway, events, started, start_s + _SPARE_S)
            return {name: _probed(name, heard.get(name), gateway) for name in started}
        finally:
            await gateway.close()
    finally:
        scratch.remove()


def _for_a_moment(section: SourceSection, start_s: float) -> SourceSection:
    return section.replace(tools=ToolSelection(), start_timeout=min(section.start_timeout, start_s))


async def _heard(
    gateway: Gateway, events: Events, names: Mapping[str, SourceSection], limit_s: float
) -> dict[str, Health]:
    """How the first start of each ended, as far as it did in time."""
    heard: dict[str, Health] = {}
    all_heard = asyncio.Event()

    def changed(name: str, health: Health) -> None:
        if health.state != "starting":
            heard.setdefault(name, health)
        if heard.keys() >= names.keys():
            all_heard.set()

    events.health.append(changed)
    gateway.start()
    with suppress(TimeoutError):
        async with Within(limit_s):
            await all_heard.wait()
    return heard


def _probed(name: str, health: Health | None, gateway: Gateway) -> Probed:
    if health is None:
        return Probed(trouble="it did not answer in time")
    snapshot = gateway.router.catalog.snapshot(name)
    if health.state not in _UP or snapshot is None:
        return Probed(trouble=health.reason or health.last_error or f"it is {health.state}", hint=_hint(health))
    return Probed(operations=tuple(tool.name for tool in snapshot.tools), warnings=snapshot.warnings)


def _hint(health: Health) -> str:
    """What to do, or else what it said before it ended, which may tell."""
    words = health.stderr_tail.strip().rpartition("\n")[2]
    return health.hint or (f"it wrote: {words}" if words else "")
