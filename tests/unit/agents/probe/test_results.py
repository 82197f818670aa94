"""The isolation check before an agent starts: its version and the result of its probe."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from trunkline.agents.installed_agent import InstalledAgent
from trunkline.agents.probe.probe import Isolation, ProbeResult, ProbeStore, check_isolation
from trunkline.agents.providers.provider import Mode, Provider
from trunkline.core.errors import ISOLATION_UNVERIFIED, NATIVE_TOOL, PROXY_PROVIDER, Code, GatewayError

pytestmark = pytest.mark.law
COEXISTENCE = "mcp_proxy on provider=codex runs in coexistence mode."


def provider(name: str) -> Provider:
    return cast(Provider, SimpleNamespace(name=name, verified=frozenset({"1.0.0"})))


class CountedProbe:
    def __init__(self, tried: ProbeResult) -> None:
        self.tried = tried
        self.times = 0

    async def __call__(self) -> ProbeResult:
        self.times += 1
        return self.tried


async def judged(
    folder: Path, name: str, version: str, tried: ProbeResult | None = None, mode: Mode = "intercept", model: str = ""
) -> tuple[Isolation, int]:
    probe = CountedProbe(tried or ProbeResult(failure="not to be tried"))
    installed = InstalledAgent(program="/x", version=version)
    isolation = await check_isolation(provider(name), installed, mode, ProbeStore(folder), probe, model=model)
    return isolation, probe.times


def codes(isolation: Isolation) -> list[Code]:
    return [warning.code for warning in isolation.warnings]


@pytest.mark.parametrize("name", ["claude", "codex", "opencode"])
async def test_a_verified_version_is_not_tried(tmp_path: Path, name: str) -> None:
    assert await judged(tmp_path, name, "1.0.0") == (Isolation(), 0)


async def test_another_version_is_tried_once_and_then_known(tmp_path: Path) -> None:
    first, times = await judged(tmp_path, "codex", "2.0.0", ProbeResult())
    again, more = await judged(tmp_path, "codex", "2.0.0", ProbeResult(own_tools=("shell",)))
    assert (times, more) == (1, 0)
    assert codes(first) == codes(again) == [ISOLATION_UNVERIFIED]
    assert first.mitigation == ""


async def test_what_one_model_gets_says_nothing_of_another(tmp_path: Path) -> None:
    for model, probes in (("", 1), ("gpt-5.5", 1), ("", 0), ("gpt-5.5", 0)):
        assert (await judged(tmp_path, "codex", "2.0.0", ProbeResult(), model=model))[1] == probes
    with pytest.raises(GatewayError):
        await judged(tmp_path, "codex", "2.0.0", ProbeResult(own_tools=("exec",)), model="gpt-7")


async def test_a_version_that_showed_tools_of_its_own_is_not_started(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(GatewayError) as refused:
            await judged(tmp_path, "codex", "3.0.0", ProbeResult(own_tools=("shell",)))
        assert refused.value.problem.code is NATIVE_TOOL


@pytest.mark.parametrize(("name", "code"), [("codex", PROXY_PROVIDER), ("claude", ISOLATION_UNVERIFIED)])
async def test_where_trying_tells_nothing_the_agent_is_told_to_keep_to_our_tools(
    tmp_path: Path, name: str, code: Any
) -> None:
    for _ in range(2):  # nothing is kept of such a probe
        isolation, times = await judged(tmp_path, name, "4.0.0", ProbeResult(failure="it hung"))
        assert (codes(isolation), times) == ([code], 1)
        assert isolation.mitigation
        assert isolation.warnings[0].message.startswith(COEXISTENCE) == (name == "codex")


@pytest.mark.parametrize("tried", [ProbeResult(), ProbeResult(failure="it hung")])
@pytest.mark.parametrize("name", ["claude", "codex"])
async def test_a_warning_names_the_installed_version_and_the_verified_one(
    tmp_path: Path, name: str, tried: ProbeResult
) -> None:
    isolation, _ = await judged(tmp_path, name, "2.0.0", tried)
    [warning] = isolation.warnings
    assert [version for version in ("1.0.0", "2.0.0") if version not in warning.message] == []


@pytest.mark.parametrize("mode", ["additive", "native"])
async def test_an_agent_that_keeps_its_own_tools_is_not_tried(tmp_path: Path, mode: Mode) -> None:
    assert await judged(tmp_path, "codex", "5.0.0", mode=mode) == (Isolation(), 0)
