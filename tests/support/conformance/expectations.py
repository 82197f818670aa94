"""How much of the harness's checks must be ok in which layout, and which checks nobody could have there."""

from __future__ import annotations

from tests.support.conformance.client_scenarios import ClientScenario
from tests.support.conformance.harness import MODERN, Report, Wire
from tests.support.conformance.layouts import TO_LEGACY, Layout

NO_KEY = "a request of the legacy era has no key: the gateway makes one up, and the harness wants the server's own"
NO_SUCH_ERROR = "a server of the legacy era has no error for a client that declares too little"
IMPOSSIBLE_WITH_LEGACY = {
    "sep-2575-server-rejects-undeclared-capability": NO_SUCH_ERROR,
    "sep-2575-missing-capability-http-400": NO_SUCH_ERROR,
    "sep-2322-elicitation-incomplete": NO_KEY,
    "sep-2322-elicitation-complete": NO_KEY,
    "sep-2322-ignore-unexpected-params": NO_KEY,
}
"""What a client of 2026-07-28 cannot have from a server of 2025-11-25, whoever stands between them."""
TOO_SLOW_OVER_STDIO = {
    "sep-2575-http-server-no-independent-requests-on-stream": (
        "the first client that can be asked something gets a process of its own, and the harness waits for 0.6 s only"
    ),
}


def impossible_in(layout: Layout, wire: Wire) -> dict[str, str]:
    if layout not in TO_LEGACY or wire is not MODERN:
        return {}
    return IMPOSSIBLE_WITH_LEGACY | (TOO_SLOW_OVER_STDIO if layout.transport == "stdio" else {})


def shortfall(layout: Layout, wire: Wire, report: Report) -> str:
    """What is wrong, check by check; nothing if all is as well as it can be.

    Checks that were left out count as lost: whoever advertises less must not look better.
    """
    impossible = impossible_in(layout, wire)
    faults = [check for check in report.faults if check.id not in impossible]
    if faults:
        return "\n".join(map(str, faults))
    if len(report.scenarios) != wire.scenarios:
        return f"{len(report.scenarios)} scenarios were run instead of {wire.scenarios}"
    missing = wire.ok_checks - len(impossible) - report.ok_checks
    return f"{missing} ok checks are missing:\n{report.explain()}" if missing > 0 else ""


def client_shortfall(scenario: ClientScenario, report: Report) -> str:
    if report.faults:
        return "\n".join(map(str, report.faults))
    missing = scenario.ok_checks - report.ok_checks
    return f"{missing} ok checks are missing:\n{report.explain()}" if missing > 0 else ""
