"""Whom `trunkline stdio` joins, and with which token."""

from __future__ import annotations

import pytest
from tests.support.config_files import load_text, settings_of

from trunkline.cli.stdio import client_token, is_here, mcp_url
from trunkline.core.errors import BAD_VALUE, GatewayError
from trunkline.links.http_client import Target


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("http://127.0.0.1:4747", "http://127.0.0.1:4747/mcp"),
        ("http://127.0.0.1:4747/", "http://127.0.0.1:4747/mcp"),
        ("https://h/", "https://h/mcp"),
        ("http://[::1]:4747", "http://[::1]:4747/mcp"),
        ("http://h/mcp", "http://h/mcp"),
        ("http://h/behind/an/ingress?x=y", "http://h/behind/an/ingress?x=y"),
    ],
)
def test_the_path_of_a_url_may_be_left_out(url: str, expected: str) -> None:
    assert mcp_url(url) == expected


@pytest.mark.parametrize(
    "url", ["", "h", "h:4747", "ftp://h", "http://", "http://h:x", "http://h:99999", "http://[::1", "http://h/a b\n"]
)
def test_what_is_no_url_is_refused_with_a_hint(url: str) -> None:
    with pytest.raises(GatewayError) as refused:
        mcp_url(url)
    assert refused.value.problem.code is BAD_VALUE
    assert "http://127.0.0.1:4747/mcp" in refused.value.problem.hint


def test_the_configured_token_wins_over_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    with_token = settings_of(load_text("gateway: {token: '${T}'}", environ={"T": "configured", "HOME": "/h"}))
    without = settings_of(load_text(""))
    monkeypatch.setenv("TRUNKLINE_TOKEN", "environment")
    assert client_token(with_token) == "configured"
    assert client_token(without) == "environment"
    assert client_token(None) == "environment"
    monkeypatch.delenv("TRUNKLINE_TOKEN")
    assert client_token(None) == ""


def test_only_this_machine_is_here() -> None:
    assert is_here(Target("http://localhost/mcp", socket="/run/s"))
    for host in ("localhost", "127.0.0.1", "127.8.9.1", "[::1]"):
        assert is_here(Target(f"http://{host}:4747/mcp"))
    for host in ("example.com", "10.0.0.1", "localhost.example.com", "127.0.0.1.example.com"):
        assert not is_here(Target(f"http://{host}/mcp"))
