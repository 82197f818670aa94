"""The `gateway` section."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.config_files import codes, found, load_text, settings_of

from trunkline.config.settings import GatewaySettings, with_listen
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import UNKNOWN_KEY, GatewayError


def test_every_key_can_be_set() -> None:
    loaded = load_text(
        """
gateway:
  listen: 0.0.0.0:80
  allowed_hosts: [gw.example.com]
  token: ${TOKEN}
  operator_token: ${OPERATOR}
  disclosure: all
  require_provisioning: false
  context_tokens: 8000
  search: {semantic: false, pinned: [a.b], tags: {files: ["fs.*"]}, show_all_to: []}
  naming: original
  max_name: 64
  meta_tools: false
  start_wait: 0
  state_dir: state
  log: {level: debug, format: json}
  telemetry: {exporter: otlp, endpoint: "http://127.0.0.1:4318"}
  socket: ~/gw.sock
  limits:
    message_bytes: 1048576
    request_bytes: 1048576
    header_bytes: 8192
    connections: 10
    in_flight_per_source: 1
    in_flight_per_client: 1
    queue_per_source: 1
    sessions: 1
    session_idle: 1
    sessions_per_source: 1
    source_session_idle: 1
    call_seconds: 1
    cache_bytes: 1024
""",
        environ={"TOKEN": "t0", "OPERATOR": "t1", "HOME": "/home/me"},
    )
    assert codes(loaded) == []
    gateway = settings_of(loaded).gateway
    changed = {name for name in GatewaySettings.declared if getattr(gateway, name) != getattr(GatewaySettings(), name)}
    assert changed == set(GatewaySettings.declared)
    assert gateway.listen == BindAddress("0.0.0.0", 80)
    assert gateway.socket == Path("/home/me/gw.sock")
    assert gateway.search.tags == {"files": ("fs.*",)}


def test_the_state_folder_is_in_the_home_folder() -> None:
    for text in ("", "gateway: {}", "gateway:"):
        assert settings_of(load_text(text)).gateway.state_dir == Path("/home/me/.local/state/trunkline")


def test_listening_beyond_loopback_needs_a_token() -> None:
    assert found(load_text("gateway:\n  listen: 0.0.0.0:4747\n")) == [("TL112", 2, 11)]
    assert codes(load_text("gateway: {listen: '0.0.0.0:1', token: '${T:-}'}")) == ["TL112"]
    assert codes(load_text("gateway: {listen: '0.0.0.0:1', token: '${T}'}", environ={"T": "x"})) == []
    assert codes(load_text("gateway: {listen: '[::1]:1'}")) == []


def test_the_operator_has_another_token_than_the_clients() -> None:
    both = {"A": "a-token", "B": "b-token"}
    assert codes(load_text("gateway: {token: '${A}', operator_token: '${B}'}", environ=both)) == []
    same = "gateway:\n  token: ${A}\n  operator_token: ${A}\n"
    assert found(load_text(same, environ=both)) == [("TL113", 3, 19)]
    assert codes(load_text("gateway: {token: '${A:-}', operator_token: '${A:-}'}")) == []


def test_searching_needs_the_tools_to_search_with() -> None:
    both = "gateway:\n  meta_tools: false\n  disclosure: search\n"
    assert found(load_text(both)) == [("TL113", 3, 15)]
    assert codes(load_text("gateway: {meta_tools: false, disclosure: auto}")) == []


def test_no_limit_can_be_switched_off() -> None:
    for name in settings_of(load_text("")).gateway.limits.declared:
        assert codes(load_text(f"gateway: {{limits: {{{name}: 0}}}}")) == ["TL104"]


def test_values_out_of_bounds_are_refused() -> None:
    for text in (
        "max_name: 15",
        "max_name: 129",
        "start_wait: -1",
        "disclosure: none",
        "token: 'two words'",
        "allowed_hosts: ['http://x']",
        "log: {level: loud}",
        "search: {tags: {'': [x]}}",
    ):
        assert codes(load_text(f"gateway: {{{text}}}"))[-1:] == ["TL104"], text


@pytest.mark.law
def test_the_repr_shows_no_token() -> None:
    loaded = load_text("gateway: {token: '${A}', operator_token: '${B}'}", environ={"A": "hunter2", "B": "hunter3"})
    assert settings_of(loaded).gateway.token == "hunter2"
    assert "hunter" not in repr(loaded.settings)


def test_a_command_line_can_change_the_address() -> None:
    assert with_listen(GatewaySettings(), host=None, port=0).listen == BindAddress("127.0.0.1", 0)
    assert with_listen(GatewaySettings(), host="[::1]", port=None).listen == BindAddress("::1", 4747)
    assert with_listen(GatewaySettings(token="t"), host="0.0.0.0", port=80).listen == BindAddress("0.0.0.0", 80)
    for host, port, code in (("0.0.0.0", None, "TL112"), ("", None, "TL104"), (None, 70000, "TL104")):
        with pytest.raises(GatewayError) as caught:
            with_listen(GatewaySettings(), host=host, port=port)
        assert caught.value.problem.code.id == code


@pytest.mark.parametrize(
    ("telemetry", "problems"),
    [
        ("{exporter: otlp}", []),
        ("{exporter: otlp, endpoint: 'https://collector.example/custom'}", []),
        ("{exporter: console}", []),
        ("{exporter: file, endpoint: spans.jsonl}", []),
        ("{exporter: none, endpoint: anything}", []),
        ("{exporter: file}", ["TL105"]),
        ("{exporter: otlp, endpoint: 'collector:4317'}", ["TL104"]),
        ("{exporter: otlp, endpoint: 'http://'}", ["TL104"]),
        ("{exporter: otlp, endpoint: 'http://[::1'}", ["TL104"]),
        ("{exporter: otlp, endpoint: 'http://me:pass@collector'}", ["TL104"]),
        ("{exporter: zipkin}", ["TL104"]),
    ],
)
def test_where_traces_go_is_checked(telemetry: str, problems: list[str]) -> None:
    assert codes(load_text(f"gateway: {{telemetry: {telemetry}}}")) == problems


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("gateway: {limits: {lanes_per_source: 4}}", "sessions_per_source"),
        ("gateway: {limits: {lane_idle: 4}}", "source_session_idle"),
        ("gateway: {limits: {question_seconds: 4}}", "server_request_seconds"),
        ("sources: {a: {kind: mcp_stdio, command: x, cache: {vouched: [b]}}}", "assume_read_only"),
    ],
)
def test_a_key_with_an_old_name_is_told_the_new_one(text: str, name: str) -> None:
    (problem,) = load_text(text).problems
    assert problem.code is UNKNOWN_KEY
    assert f"now called `{name}`" in problem.message
