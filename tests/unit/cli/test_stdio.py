"""The gateway that `trunkline stdio` joins, and the token it sends."""

from __future__ import annotations

import pytest
from tests.support.config_files import load_text, settings_of

from trunkline.cli.stdio import belongs_to, client_token
from trunkline.runtime.http_client import HttpTarget


def test_the_configured_token_wins_over_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with_token = settings_of(load_text("gateway: {token: '${T}'}", environ={"T": "configured", "HOME": "/h"}))
    without = settings_of(load_text(""))
    monkeypatch.setenv("TRUNKLINE_TOKEN", "environment")
    assert client_token(with_token) == "configured"
    assert client_token(without) == "environment"
    assert client_token(None) == "environment"
    monkeypatch.delenv("TRUNKLINE_TOKEN")
    assert client_token(None) == ""


@pytest.mark.law
def test_a_file_that_nobody_named_gives_its_token_to_its_own_gateway_only() -> None:
    settings = settings_of(load_text("gateway: {listen: '127.0.0.1:4747', socket: /run/gw.sock}"))
    assert belongs_to(HttpTarget("http://localhost/mcp", socket="/run/gw.sock"), settings)
    assert not belongs_to(HttpTarget("http://localhost/mcp", socket="/run/other.sock"), settings)
    assert belongs_to(HttpTarget("http://127.0.0.1:4747/mcp"), settings)
    assert not belongs_to(HttpTarget("http://127.0.0.1:4747/mcp"), None)
    for url in (
        "http://[::1]:4747/mcp",
        "http://localhost:4747/mcp",
        "http://127.0.0.1:4748/mcp",
        "https://127.0.0.1:4747/mcp",
        "http://example.com:4747/mcp",
    ):
        assert not belongs_to(HttpTarget(url), settings)
