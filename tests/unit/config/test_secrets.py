"""Secrets: recognized by name and look, warned about, and hidden where the file is shown."""

from __future__ import annotations

import pytest
from tests.support.config_files import codes, load_json, load_text, node_of

from trunkline.config.secret_detection import is_secret_name
from trunkline.config.secrets import hide_secrets

pytestmark = pytest.mark.law

SECRET = "s3cr3t-Value-4711"


def test_names_of_secrets() -> None:
    secret = [
        "TOKEN",
        "GITHUB_TOKEN",
        "api_key",
        "API-KEY",
        "apiKey",
        "X-Api-Key",
        "Authorization",
        "DB_PASSWORD",
        "passwd",
        "clientSecret",
        "--access-token",
        "GITHUB_PAT",
        "AWS_SECRET_ACCESS_KEY",
        "Cookie",
        "Proxy-Authorization",
        "authToken",
    ]
    harmless = [
        "TOKEN_LIMIT",
        "MAX_TOKENS",
        "KEY_PATH",
        "MONKEY",
        "keyboard",
        "KEYS_DIR",
        "PATH",
        "tokenizer",
        "AUTHOR",
        "compat",
        "SECRET_NAME",
    ]
    assert [name for name in secret if not is_secret_name(name)] == []
    assert [name for name in harmless if is_secret_name(name)] == []


def warnings_for(server: str) -> list[str]:
    return [problem.message for problem in load_text(f"mcpServers: {{a: {{command: x, {server}}}}}").problems]


def test_a_secret_written_out_is_warned_about() -> None:
    for server in (
        f"env: {{API_TOKEN: {SECRET}}}",
        f"args: [--token, {SECRET}]",
        f"args: ['--api-key={SECRET}']",
        "args: [--header, 'Authorization: Bearer abcdefgh12345678']",
        "args: ['postgres://me:hunter2@db/x']",
        "env: {WHATEVER: ghp_abcdefghijklmnopqrstuvwx}",
        "env: {AWS_SECRET_ACCESS_KEY: /wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY}",
        f"env: {{OPENAI_API_TOKENS: {SECRET}}}",
    ):
        (message,) = warnings_for(server)
        assert "secret" in message
        assert SECRET not in message


def test_references_paths_numbers_and_switches_are_no_secrets() -> None:
    for server in (
        "env: {API_TOKEN: '${HOME}'}",
        "env: {API_TOKEN: '${NOPE:-}'}",
        "env: {API_TOKEN: ''}",
        "env: {SSH_KEY: ~/.ssh/id, TLS_KEY: /etc/key, USE_KEY: true, RETRY_KEY: 5}",
        "args: [--token, '${HOME}']",
        "args: [--key=./file]",
        "args: [--verbose, word]",
    ):
        assert warnings_for(server) == []


def test_the_gateways_own_tokens_are_warned_about_too() -> None:
    loaded = load_text(f"gateway: {{token: {SECRET}, operator_token: {SECRET}2}}")
    assert codes(loaded).count("TL121") == 2


def test_what_is_shown_of_a_file_holds_no_secret() -> None:
    for loaded in (
        load_text(f"gateway:\n  token: {SECRET}\n  tokn: 1\n"),
        load_text(f"gateway:\n  token:\n    - {SECRET}\n"),
        load_text(f"gateway:\n  token: >-\n    {SECRET}\n  x: 1\n"),
        load_text(f"gateway: {{token: {SECRET}\nbroken"),
        load_text(f'mcpServers: {{a: {{url: "http://x", headers: {{Authorization: "Bearer {SECRET}"}}}}}}'),
        load_text(f"mcpServers: {{a: {{command: x, args: [--token, {SECRET}]}}}}"),
        load_text(f"mcpServers: {{a: {{command: x, nope: 1, args: ['--url=http://h/?q={SECRET}']}}}}"),
        load_text(f"mcpServers: {{a: {{url: 'http://h/mcp?q={SECRET}', nope: 1}}}}"),
        load_text(f"mcpServers: {{a: {{url: 'http://h/?q={SECRET}#'}}}}"),
        load_json(f'{{"gateway": {{"token": "{SECRET}", }}}}'),
        load_json(f'{{"mcpServers": {{"a": {{"command": "x", "env": {{"API_KEY": "{SECRET}"}}}}}}}}'),
    ):
        assert loaded.problems
        assert SECRET not in loaded.text
        assert SECRET not in str(loaded.problems)


def test_hiding_keeps_every_place() -> None:
    text = f"a:\n  token: '{SECRET}'\n  other: word\n"
    hidden = hide_secrets(text, node_of(text))
    assert [len(line) for line in hidden.split("\n")] == [len(line) for line in text.split("\n")]
    assert "other: word" in hidden


def test_what_stands_beside_a_reference_or_is_its_default_is_hidden() -> None:
    for value in (
        "Bearer ${KEY} hunter2",
        "${KEY}hunter2",
        "{env:KEY} hunter2",
        "hunter2${KEY}",
        "${KEY:-hunter2}",
        "${hunter2",
    ):
        for text in (f"token: '{value}'", f"headers: {{Authorization: '{value}'}}"):
            assert "hunter2" not in hide_secrets(text, node_of(text))
            assert "hunter2" not in hide_secrets(text, None)
    for value in ("Bearer ${KEY}", "${KEY}", "${KEY:-}", "${A}${B}", "Bearer {env:KEY}"):
        text = f"token: '{value}'"
        assert hide_secrets(text, node_of(text)) == hide_secrets(text, None) == text


def test_a_reference_in_a_url_is_shown() -> None:
    text = "url: https://h.example/${WHOSE_PLACE}/mcp?api_key=${THE_API_KEY}"
    assert hide_secrets(text, node_of(text)) == text


def test_references_of_other_programs_are_no_secrets() -> None:
    text = '{"headers": {"Authorization": "Bearer {env:ISSUES_TOKEN}", "X-Api-Key": "{env:KEY}"}}'
    assert hide_secrets(text, node_of(text)) == text
