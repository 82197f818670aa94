"""The scenarios in which the harness plays the server: a client of the SDK, the gateway, and the harness behind it."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

from tests.support.conformance.harness import Report, judge_client
from tests.support.conformance.stock import Stock

CLIENT_MODULE = "tests.support.conformance.client"
COMMAND = [sys.executable, "-m", CLIENT_MODULE]
LEGACY = "2025-11-25"
MODERN = "2026-07-28"


@dataclass(frozen=True)
class ClientScenario:
    """The version of the protocol is the harness's; `ok_checks` is what can be had through a gateway."""

    name: str
    version: str
    ok_checks: int

    def __str__(self) -> str:
        return f"{self.name}-{self.version}"


CLIENT_SCENARIOS = (
    ClientScenario("initialize", LEGACY, 1),
    ClientScenario("tools_call", LEGACY, 2),
    ClientScenario("elicitation-sep1034-client-defaults", LEGACY, 5),
    ClientScenario("sse-retry", LEGACY, 3),
    ClientScenario("json-schema-2020-12-preservation", LEGACY, 9),
    ClientScenario("tools_call", MODERN, 2),
    # three more look at capabilities in requests, and the mock has nothing that a client could ask for
    ClientScenario("request-metadata", MODERN, 5),
    ClientScenario("sep-2322-client-request-state", MODERN, 5),
    ClientScenario("http-standard-headers", MODERN, 9),
    ClientScenario("http-custom-headers", MODERN, 18),
    ClientScenario("http-invalid-tool-headers", MODERN, 12),
    ClientScenario("json-schema-ref-no-deref", MODERN, 1),
    ClientScenario("json-schema-2020-12-preservation", MODERN, 9),
)
"""All that need no login."""


def judge_through_gateway(scenario: ClientScenario, folder: Path, stock: Stock | None = None) -> Report:
    command = stock.command(CLIENT_MODULE) if stock else COMMAND
    return judge_client(scenario.name, scenario.version, [*command, "gateway", str(folder / "gateway")], folder)


def judge_directly(scenario: ClientScenario, folder: Path) -> Report:
    """Without a gateway, to tell its faults from the client's."""
    return judge_client(scenario.name, scenario.version, [*COMMAND, "direct"], folder)
