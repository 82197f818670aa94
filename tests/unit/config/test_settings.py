"""The settings of a valid file."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.support.config_files import KINDS, load_text, settings_of

from trunkline.config.files import ConfigFile
from trunkline.config.load import load_config

pytestmark = pytest.mark.law


def test_settings_know_their_file_and_show_no_secret(tmp_path: Path) -> None:
    text = """
gateway: {token: "${S}"}
mcpServers:
  a: {command: x, args: ["--key=${S}"], env: {TOKEN: "${S}"}}
  b: {url: "https://example.com/?key=${S}", headers: {Authorization: "Bearer ${S}"}}
"""
    settings = settings_of(load_text(text, environ={"S": "hunter2", "HOME": "/h"}, folder=tmp_path))
    assert settings.path == tmp_path / "trunkline.yaml"
    assert "hunter2" not in repr(settings)


ENVIRON = {"HOME": "/home/me", "S": "s3cr3t-Value-4711", "MODE": "production", "LISTED": "json-lines-v2"}
PROGRAM_KEYS = [
    "args: [--token, s3cr3t-Value-4711]",
    "args: ['--api-key=s3cr3t-Value-4711']",
    "args: ['${S}']",
    "args: ['prefix-${S}-suffix']",
    "env: {API_TOKEN: s3cr3t-Value-4711}",
    "env: {WHATEVER: '${S}'}",
    "inherit_env: [S]",
]
HTTP_KEYS = [
    "headers: {X-Api-Key: s3cr3t-Value-4711}",
    "headers: {X-Other: '${S}'}",
    "headers: {Authorization: 'Bearer ${S}'}",
]
FIELDS = {
    **{f"mcp_stdio {keys}": f"kind: mcp_stdio, command: x, {keys}" for keys in PROGRAM_KEYS},
    **{f"plugin {keys}": f"kind: plugin, command: x, {keys}" for keys in PROGRAM_KEYS},
    "plugin config": "kind: plugin, command: x, config: {deep: [{password: s3cr3t-Value-4711}]}",
    "plugin config ref": "kind: plugin, command: x, config: {deep: ['${S}']}",
    **{f"mcp_http {keys}": f"kind: mcp_http, url: 'http://h/mcp', {keys}" for keys in HTTP_KEYS},
    "url query": "kind: mcp_http, url: 'http://h/mcp?k=s3cr3t-Value-4711'",
    "url ref": "kind: mcp_http, url: 'http://h/${S}/mcp'",
    "endpoint ref": "kind: service, endpoint: 'http://h/${S}'",
    "tokens": "kind: service, endpoint: 'http://h', tokens: {'*': s3cr3t-Value-4711}",
    "app token": "kind: app, token: s3cr3t-Value-4711",
    "sandbox": "kind: builtin, root: ., sandbox: {env: {API_TOKEN: s3cr3t-Value-4711}}",
    "sandbox ref": "kind: builtin, root: ., sandbox: {env: {WHATEVER: '${S}'}}",
}


@pytest.mark.parametrize("field", FIELDS)
def test_a_secret_is_known_from_every_field_of_every_kind(field: str) -> None:
    settings = settings_of(load_text(f"sources: {{a: {{{FIELDS[field]}}}}}", environ=ENVIRON))
    assert "s3cr3t-Value-4711" in settings.secrets(ENVIRON)


@pytest.mark.parametrize("key", ["token", "operator_token"])
def test_the_gateways_own_tokens_are_known(key: str) -> None:
    assert settings_of(load_text(f"gateway: {{{key}: t0ken-1234}}")).secrets({}) == {"t0ken-1234"}


def test_plain_values_are_no_secrets() -> None:
    text = """
sources:
  a: {kind: mcp_stdio, command: x, args: [json-lines-v2], env: {FORMAT: json-lines-v2, A: '${MODE}', B: '${HOME}'}}
  b: {kind: mcp_http, url: 'http://h.example/mcp?page=2', headers: {X-Format: json-lines-v2}}
"""
    assert settings_of(load_text(text, environ=ENVIRON)).secrets({}) == set()


def test_what_is_inherited_by_name_is_as_good_as_referred_to() -> None:
    settings = settings_of(load_text("sources: {a: {kind: mcp_stdio, command: x, inherit_env: [LISTED, HOME]}}"))
    assert settings.secrets(ENVIRON) == {"json-lines-v2"}


def test_variables_of_a_file_are_secrets_and_those_of_an_editor_are_not(tmp_path: Path) -> None:
    folder = tmp_path / "my-work-2"
    (folder / ".vscode").mkdir(parents=True)
    (folder / ".env").write_text("PLAINLY_NAMED=from-a-file-1")
    file = folder / ".vscode" / "mcp.json"
    env = {"A": "${workspaceFolderBasename}-long-enough", "B": "${env:S}"}
    server = {"command": "x", "env": env, "envFile": "${workspaceFolder}/.env"}
    file.write_text(json.dumps({"servers": {"a": server}}))
    settings = settings_of(load_config(ConfigFile.named(file), environ=ENVIRON, kinds=KINDS))
    assert settings.secrets({}) == {"from-a-file-1", "s3cr3t-Value-4711"}
