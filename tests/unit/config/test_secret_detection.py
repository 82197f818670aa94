"""The one rule: which values are secret, and which never are."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from trunkline.config.secret_detection import may_be_secret, secrets_in, secrets_in_environment

pytestmark = pytest.mark.law

SECRET = "s3cr3t-Value-4711"


@pytest.mark.parametrize(
    "value",
    [
        "s3cr3t!",
        "production",
        "Production",
        "PRODUCTION",
        "localhost",
        "development",
        "workflow",
        "informational",
        "christopher",
        "/etc/keys/service.json",
        "/usr/bin:/usr/local/bin",
        "./relative/file",
        "../relative/file",
        "~/.ssh/id_ed25519",
        "C:\\Data\\key.pem",
        "C:/Data/keys",
        "/srv/code/MyProject2024Backend",
        "/nix/store/4l2x0a3kzzz1c9-python3.11",
        "/etc/ssl/private/key.pem",
        "/home/me/key.json",
        "/run/secrets/token",
        "/Users/Jane/Library/KeyChains/MyKey",
        "/usr/share/javascript/jQueryUI",
        "/u01/app/oracleHome/Keys",
        "/home/me/Projects/Client2024Report7Final/data",
        "/private/tmp/com.apple.launchd.Ab1dEf2gHi/Listeners",
        "~/.ssh/agent/s.9HIuf2Ew6Z.agent.J6ZbDzQnVK",
    ],
)
def test_short_values_paths_and_single_words_are_never_secret(value: str) -> None:
    assert not may_be_secret(value)
    assert list(secrets_in("PASSWORD", value, from_outside=True)) == []


@pytest.mark.parametrize(
    "value", ["~bob/keys", "credentials/gcp-key.json", "gcp-key.json", "certs/server.key", "server-key.pem"]
)
def test_what_may_be_a_path_is_one_unless_it_has_the_name_of_a_secret(value: str) -> None:
    assert list(secrets_in("PLACE", value, from_outside=True)) == []
    assert list(secrets_in("PASSWORD", value)) == [value, value]


@pytest.mark.parametrize(
    "value",
    [
        "hunter22",
        "12345678",
        "correct-horse-battery-staple",
        "correct horse battery staple",
        "qwmzkfjrnvbptlxc",
        "abcdefghijklmnop",
        "/KxaB3fzQ9aB+Zx9sdfK1wPq7Lm2Rt5Yu8Io0As",
        "/wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        "/QbXfRtZkLmWpYsVnHcJdg==",
        "~!hunter22",
        "ghp_abcdefghijklmnopqrstuvwx",
    ],
)
def test_what_is_neither_may_be_secret(value: str) -> None:
    assert may_be_secret(value)
    assert value in set(secrets_in("PASSWORD", value))


def found(name: str, value: object, **keys: Any) -> set[str]:
    return set(secrets_in(name, value, **keys))


NAMES = ["GITHUB_TOKEN", "DB_PASS", "api-key", "X-Auth", "TOKEN_2", "clientSecret", "JWT", "PGPASSWORD"]
NAMES += ["REFRESHTOKEN", "SECRET_KEY_BASE", "PRIVATE_KEY_PEM", "API_TOKEN_PROD", "SLACK_BOT_TOKEN_V2", "bearer"]
NAMES += ["API_KEYS", "OPENAI_API_TOKENS", "MY_ACCESSKEYS", "PGPASS", "SASKEY", "DBPWD", "LDAP_BINDPW", "MINIO_TOKENS"]
NAMES += ["API_KEY_OPENAI", "GITHUB_TOKEN_RO", "PASSCODE", "WIFI_PSK", "DB_CREDS", "GITHUB_OAUTH", "BASICAUTH"]
NAMES += [
    "TOKEN_VALUE",
    "CLIENT_SECRET_JSON",
    "tokens",
    "apiTokens",
    "SESSION_COOKIES",
    "storepass",
    "SSHKEY_2",
    "KEY_BASE64",
]
SPARED = [
    "TOKEN_LIMIT",
    "MAX_TOKENS",
    "PASSWORD_FILE",
    "TOKEN_URL",
    "MONKEY",
    "bypass",
    "KEYBOARD",
    "COMPASS",
    "TOKENIZER",
]
SPARED += [
    "maxOutputTokens",
    "max-new-tokens",
    "PROMPT_TOKENS",
    "stopTokens",
    "HOTKEYS",
    "hotKeys",
    "TOKEN_FILE",
    "KEYS_DIR",
    "compat",
    "no-auth",
    "DISABLE_TOKEN",
    "sort-key",
    "PRIMARY_KEY",
    "GIT_CONFIG_KEY_0",
    "BUDGET_TOKENS",
    "GIT_ASKPASS",
    "API_KEY_FILE",
]


@pytest.mark.parametrize("name", SPARED)
def test_a_name_that_only_speaks_of_secrets_holds_none(name: str) -> None:
    assert found(name, SECRET) == set()


@pytest.mark.parametrize("name", NAMES)
def test_a_key_that_is_named_like_a_secret_holds_one(name: str) -> None:
    assert found(name, SECRET) == {SECRET}
    assert found("config", {name: {"deep": [SECRET]}}) == {SECRET}
    assert found("args", [f"--{name}", SECRET]) == {SECRET}
    assert found("args", ["-c", f"exec server --{name} '{SECRET}' --verbose"]) == {SECRET}
    assert found("args", [f"--{name}={SECRET}&x"]) >= {f"{SECRET}&x"}
    assert found("args", ["-e", f"{name}={SECRET}"]) == {SECRET}
    assert found("WHATEVER", f'{{"{name}": "{SECRET}", "mode": "read-only-mode"}}') == {SECRET}


@pytest.mark.parametrize(
    "credential",
    [
        "_".join(("sk", "live", "4eC39HqLyjWDarjtT1zdp7dc")),
        "_".join(("rk", "test", "4eC39HqLyjWDarjtT1zdp7dc")),
        "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    ],
)
def test_a_known_kind_of_key_is_found_wherever_it_stands(credential: str) -> None:
    assert found("MODE", credential) == {credential}
    assert found("args", ["-c", f"exec server --with '{credential}' --verbose"]) == {credential}


def test_a_key_in_base64_that_begins_with_a_slash_is_no_path() -> None:
    key = "/wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY"
    assert found("AWS_SECRET_ACCESS_KEY", key) == {key}
    for name, path in {
        "SSL_KEY": "/etc/ssl/private/key.pem",
        "GOOGLE_APPLICATION_CREDENTIALS": "/home/me/key.json",
        "TOKEN_FILE": "/run/secrets/token",
    }.items():
        assert found(name, path, from_outside=True) == set()


@pytest.mark.parametrize(
    "name", ["key" + "1" * 200 + "x", "key" + "base64" * 100 + "x", "max_" * 75_000 + "tokens_key"]
)
def test_a_long_name_is_looked_through_once(name: str) -> None:
    found(name, SECRET)


def test_a_header_in_an_argument_is_found_with_and_without_its_scheme() -> None:
    assert found("args", ["--header", f"Authorization: Bearer {SECRET}"]) >= {SECRET, f"Bearer {SECRET}"}
    assert found("Authorization", f"Bearer {SECRET}") >= {SECRET}


def test_a_name_and_password_in_base64_are_found_as_they_are() -> None:
    basic = base64.b64encode(f"me:{SECRET}".encode()).decode()
    assert found("headers", {"Authorization": f"Basic {basic}"}) >= {SECRET, f"me:{SECRET}", basic}
    assert found("WHATEVER", "Basic authentication") == set()


def test_a_plain_value_is_a_secret_only_when_it_comes_from_outside() -> None:
    assert found("MODE", "json-lines-v2") == set()
    assert found("MODE", "json-lines-v2", from_outside=True) == {"json-lines-v2"}
    assert found("args", ["--verbose", "json-lines-v2", "--token", "--quiet"]) == set()


@pytest.mark.parametrize(
    "value",
    [
        "10.0.0.12:8080",
        "127.0.0.1",
        "[fe80::1]:8080",
        "2025-11-25",
        "10000000",
        "api.example.com",
        "localhost:8080",
        "https://example.com/v1/things?mode=plain&page=2",
    ],
)
def test_addresses_and_numbers_from_outside_are_no_secrets(value: str) -> None:
    assert found("PLACE", value, from_outside=True) == set()


def test_a_url_gives_its_user_password_query_and_what_nobody_would_make_up() -> None:
    url = "https://user-name-1:pass%2Fword1@h.example/api/NGQ1abc4def5ghi6/list?v=2025-11-25&k=query%2Bvalue1#t=fragment-1"
    assert found("url", url) == {
        "user-name-1:pass%2Fword1",
        "user-name-1:pass/word1",
        "user-name-1",
        "pass%2Fword1",
        "pass/word1",
        "NGQ1abc4def5ghi6",
        "query%2Bvalue1",
        "query+value1",
        "fragment-1",
    }
    assert found("args", [f"--url={url}"]) >= {"pass/word1", "query+value1"}


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("https://hooks.example.com/services/T00AB/B00CD/abCDefGHijKLmnOPqrSTuvWX", "abCDefGHijKLmnOPqrSTuvWX"),
        ("https://mcp.example.com/s/NzQ3ZTEyLTAwMDAtMTIzNA==/mcp", "NzQ3ZTEyLTAwMDAtMTIzNA=="),
        ("https://h.example/x;session=abCDefGHijKLmnOPqrSTuvWX/y", "abCDefGHijKLmnOPqrSTuvWX"),
        ("postgres://me:Ab1/qX7vT2mK9@db.example/things", "Ab1/qX7vT2mK9"),
        ("me:qX7vT2mK9wP@tcp(127.0.0.1:3306)/things", "qX7vT2mK9wP"),
    ],
)
def test_secrets_of_an_address_are_found_in_unusual_places(text: str, secret: str) -> None:
    assert secret in found("PLACE", text)


def test_words_of_a_path_that_were_joined_are_no_secret() -> None:
    assert found("url", "https://h.example:8080/ReleaseNotesVersionTwo/a@b") == set()


def test_what_follows_a_variable_of_a_command_is_no_part_of_it() -> None:
    command = f"GITHUB_TOKEN={SECRET} npx -y @modelcontextprotocol/server-github"
    assert found("args", ["sh", "-c", command]) == {SECRET}
    assert "correct horse battery" in found("args", ["-e", "DB_PASSWORD=correct horse battery"])


def test_quoted_values_of_options_and_items_of_lists_are_found() -> None:
    assert "correct horse" in found("args", ["-c", "server --token 'correct horse' --verbose"])
    assert found("WHATEVER", f'{{"token": ["{SECRET}"]}}') == {SECRET}


def test_of_the_environment_secrets_are_found_by_name_and_what_is_inherited_as_if_referred_to() -> None:
    environ = {"A_TOKEN": SECRET, "LISTED": "json-lines-v2", "HOME": "/home/me", "LANG": "en_US.UTF-8"}
    environ |= {"HTTPS_PROXY": "http://me:pr0xy-word@proxy.example:3128", "RANDOM_1": "c4n4ry5c1e7a9f3b2d"}
    by_name = {SECRET, "pr0xy-word", "me:pr0xy-word"}
    assert set(secrets_in_environment(environ)) == by_name
    assert set(secrets_in_environment(environ, ("LISTED", "HOME"))) == {*by_name, "json-lines-v2"}
    assert set(secrets_in_environment(environ, "all")) == {*by_name, "c4n4ry5c1e7a9f3b2d"}


@pytest.mark.parametrize(
    "value",
    [
        "a" * 300_000,
        "a=" * 100_000,
        "://a:" * 60_000,
        "a:b@" * 80_000,
        '{"token":[' * 30_000,
        "x://" * 60_000,
        "a/" * 100_000,
        "1a" * 100_000,
        "eyJ-" * 80_000,
        "key=" * 80_000,
        "key={key=" * 40_000,
        "key=a " * 50_000,
        "key=&" * 60_000,
        "key='\"" * 50_000,
        'key=\\"' * 50_000,
        "key=a;" * 50_000,
        "/a" * 150_000,
        "~/" * 150_000,
        "a:" * 150_000,
        "1." * 150_000,
        " " * 1_000_000,
        "=" * 1_000_000,
        "-" * 1_000_000,
        "{" * 1_000_000,
        "token:\n" * 50_000,
    ],
)
def test_a_very_long_value_is_looked_through_once(value: str) -> None:
    list(secrets_in("A", value, from_outside=True))
