"""Redaction from end to end: from a configuration and its variables to the text that is shown."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.config_files import load_json

from trunkline.config.settings import Settings
from trunkline.telemetry.redaction import Redactor

pytestmark = pytest.mark.law

RANDOM = "Zx9kQ2w8rTyy"
KEY_LINES = "MIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
GOOGLE = json.dumps(
    {
        "type": "service_account",
        "project_id": "my-project-123",
        "private_key_id": "f3c9a7715e0b4d2288aa",
        "private_key": f"-----BEGIN PRIVATE KEY-----\n{KEY_LINES}\n-----END PRIVATE KEY-----\n",
        "client_email": "gateway@my-project-123.iam.gserviceaccount.com",
        "auth_uri": "https://accounts.google.com/o/oauth2/auth",
        "token_uri": "https://oauth2.googleapis.com/token",
        "universe_domain": "googleapis.com",
    }
)
KUBECONFIG = f"""apiVersion: v1
kind: Config
clusters:
- cluster:
    certificate-authority-data: TUlJRXZRSUJBREFOQmdrcWhraUc5dzBC
    server: https://k8s.example.com:6443
  name: kubernetes-main
contexts:
- context: {{cluster: kubernetes-main, user: kubernetes-admin}}
users:
- name: kubernetes-admin
  user:
    token: correct-horse-{RANDOM}
    password: "correct horse battery"
"""


def settings_of(env: dict[str, str], args: list[str], environ: dict[str, str]) -> Settings:
    servers: dict[str, Any] = {
        "playwright": {"command": "x", "env": env, "args": args},
        "github-mcp": {"command": "x"},
    }
    own = {
        "kind": "mcp_stdio",
        "command": "x",
        "prefix": "wide_prefix",
        "tools": {"rename": {"make-it-so": "create_my_issue"}},
    }
    loaded = load_json(json.dumps({"mcpServers": servers, "sources": {"my_tools": own}}), environ=environ)
    assert loaded.settings is not None, loaded.problems
    return loaded.settings


def shown(text: str, env: dict[str, str] | None = None, args: list[str] | None = None, **environ: str) -> str:
    """What is shown of a text. Each variable of `environ` is referred to by one of no telling name."""
    referred = {f"X_{number}": f"${{{name}}}" for number, name in enumerate(environ)}
    settings = settings_of({**(env or {}), **referred}, args or [], environ)
    return Redactor(settings.secrets({}), settings.names())(text)


WORDS = ["playwright", "postgresql", "rabbitmq", "snowflake", "knowledge", "technology", "algorithm", "copyright"]
WORDS += ["technique", "Elasticsearch", "KUBERNETES", "workflow", "production"]
OWN_NAMES = ["github-mcp", "my_tools", "wide_prefix", "make-it-so", "create_my_issue"]
ADDRESSES = [
    "api.example.com",
    "db.prod.internal:5432",
    "localhost:48213",
    "postgres:5432",
    "10.0.0.12:8080",
    "fe80::1:2",
]
NUMBERS = ["123456789", "12345.678", "2025-11-25", "2025-11-25T10:00:00Z"]
PATHS = ["/etc/keys/service.json", "~/.ssh/id_ed25519", "./relative", "C:\\Data\\key.pem", "certs/server.key"]


@pytest.mark.parametrize("value", [*WORDS, *OWN_NAMES, *ADDRESSES, *NUMBERS, *PATHS])
def test_ordinary_values_of_variables_stay_readable(value: str) -> None:
    assert shown(f"cannot use {value} here", SETTING=value) == f"cannot use {value} here"


@pytest.mark.parametrize(
    "value",
    [
        "48213377190042",
        "1234567890",
        "correct.horse.battery",
        "correct/horse/battery",
        "deploybot:48213",
        "dead:beef:cafe:1234",
        "qwmzkfjr",
        "xkcvbnmw",
        "json-lines-v2",
    ],
)
def test_all_else_from_a_variable_is_hidden(value: str) -> None:
    assert shown(f"cannot use {value} here", SETTING=value) == "cannot use *** here"


def test_items_of_a_list_that_are_names_of_our_own_stay_readable() -> None:
    text = f"github-mcp and playwright, not {RANDOM}"
    assert shown(text, ENABLED=f"github-mcp,playwright,{RANDOM}") == "github-mcp and playwright, not ***"


@pytest.mark.parametrize(
    ("secret", "said"),
    [("ghp_16c7e42f292c6912e7", "GHP_16C7E42F292C6912E7"), ("deadbeefcafe1234", "DEADBEEFCAFE1234")],
)
def test_a_secret_is_hidden_in_upper_case_too(secret: str, said: str) -> None:
    assert shown(f"unknown: {said}", SETTING=secret) == "unknown: ***"


@pytest.mark.parametrize(
    ("argument", "secret"),
    [
        ("Server=db;User Id=me;Password=Zx9&kQ2w8rT;Encrypt=yes", "Zx9&kQ2w8rT"),
        ("Server=db;User Id=me;Password=Zx9 kQ, 2w8rT;Encrypt=yes", "Zx9 kQ, 2w8rT"),
        ("Server=db;Password='Zx9;kQ2w8rT';Encrypt=yes", "Zx9;kQ2w8rT"),
        ("host=db password='a b;c9XkQ2wz' dbname=x", "a b;c9XkQ2wz"),
        ('host=db password="a \\"b\\";c9XkQ2wz"', 'a "b";c9XkQ2wz'),
        ("host=db password=a{b}c9XkQ2wz dbname=x", "a{b}c9XkQ2wz"),
        ("host=db password=a\\b,c9XkQ2wz dbname=x", "a\\b,c9XkQ2wz"),
        ("export API_KEY='ab cd ef gh'", "ab cd ef gh"),
        ('{"password": "ab, cd; ef gh", "mode": "read-only"}', "ab, cd; ef gh"),
        ("curl -d 'token=Zx9kQ2w8&mode=read-only'", "Zx9kQ2w8"),
    ],
)
def test_a_password_inside_an_argument_is_hidden_whole(argument: str, secret: str) -> None:
    assert shown(f"denied: {secret}.", args=["-c", argument]) == "denied: ***."
    assert shown(f"denied: {secret}.", env={"CONNECTION": argument}) == "denied: ***."
    assert shown("read-only Encrypt=yes dbname=x", args=["-c", argument]) == "read-only Encrypt=yes dbname=x"


@pytest.mark.parametrize(
    "value",
    ["/9jK!mz#Lq2", "/Zx9kQ2w8", "./x9-Qw8!rTyy", "~/Zx9k!Q2w8#", "Zx9kQ2w8rTyy.env", "my-s3cret.txt", "a!/Zx9/kQ2w8"],
)
def test_a_password_that_only_begins_or_ends_like_a_path_is_hidden(value: str) -> None:
    assert shown(f"wrong: {value}", env={"DB_PASSWORD": value}) == "wrong: ***"
    assert shown(f"wrong: {value}", args=["--password", value]) == "wrong: ***"
    assert shown(f"wrong: {value}", env={"PLACE": f"https://me:{quote(value, safe='')}@h.example"}) == "wrong: ***"


def test_a_path_stays_readable_whatever_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gcp-key.json").touch()
    monkeypatch.chdir(tmp_path)
    for path in ("/etc/keys/service.json", "~/.ssh/id_ed25519", "C:\\Data\\key.pem", "gcp-key.json"):
        assert shown(f"cannot read {path}", env={"SSL_KEY": path}) == f"cannot read {path}"
    assert shown("cannot read aws-key.json", env={"SSL_KEY": "aws-key.json"}) == "cannot read ***"


NAMED = ["VAULT_SECRET_ID", "TOKEN_GITHUB", "SECRET_GITHUB", "PASSWORD_MAIN", "GITHUB_TOKEN_WORK", "JWT_SECRET_CURRENT"]
NAMED += [
    "SECRET_NEW",
    "MASTER_KEY_OLD",
    "AUTH_HEADER",
    "PASS_PHRASE",
    "AUTH",
    "GITHUB_PAT",
    "ROUTING_KEY",
    "tokenWork",
]


@pytest.mark.parametrize("name", NAMED)
def test_a_name_with_a_word_for_a_secret_in_it_holds_one(name: str) -> None:
    assert shown(f"got {RANDOM}", env={name: RANDOM}) == "got ***"


@pytest.mark.parametrize(
    "name",
    [
        "TOKEN_LIMIT",
        "TOKEN_TTL",
        "PASSWORD_MAX_LENGTH",
        "SECRET_NAME",
        "TOKEN_ENDPOINT_URL",
        "TOKEN_EXPIRES",
        "API_KEY_HEADER_NAME",
        "ACCESS_KEY_ID",
        "TOKENS_PER_MINUTE",
        "PASSWORD_FILE",
        "CREDENTIALS_DIR",
    ],
)
def test_a_name_that_says_something_about_a_secret_holds_none(name: str) -> None:
    assert shown(f"got {RANDOM}", env={name: RANDOM}) == f"got {RANDOM}"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("SONAR_PROJECT_KEY", "my-org_my-project"),
        ("ROUTING_KEY", "user.created.v1"),
        ("S3_KEY", "reports/2024/data.csv"),
        ("STATE_KEY", "reports/2024/data.csv"),
        ("AUTH", "client-credentials"),
        ("FILE_PAT", "src/**/*.py"),
        ("GROUP_KEY", "team-backend_2"),
        ("LOOKUP_KEY", "customerName.firstName"),
        ("TOKENS", "1000000000"),
    ],
)
def test_an_ordinary_value_under_a_vague_name_stays_readable(name: str, value: str) -> None:
    text = f"working on {value}, AUTH_METHOD={value}"
    assert shown(text, env={name: value}) == text


def test_of_json_in_a_variable_only_what_is_a_secret_alone_is_hidden() -> None:
    text = "POST https://oauth2.googleapis.com/token -> 401 for project my-project-123 (type service_account)"
    assert shown(text, JSON=GOOGLE) == text
    for secret in (*KEY_LINES.split("\n"), KEY_LINES, "f3c9a7715e0b4d2288aa", GOOGLE):
        assert shown(f"bad: {secret}", JSON=GOOGLE) == "bad: ***"


def test_of_yaml_in_a_variable_only_what_is_a_secret_alone_is_hidden() -> None:
    text = "apiVersion: v1, clusters: contexts: certificate-authority-data: kubernetes-admin at https://k8s.example.com:6443"
    assert shown(text, YAML=KUBECONFIG) == text
    for secret in (f"correct-horse-{RANDOM}", "correct horse battery", "TUlJRXZRSUJBREFOQmdrcWhraUc5dzBC"):
        assert shown(f"bad: {secret}", YAML=KUBECONFIG) == "bad: ***"


def test_a_url_within_a_secret_is_hidden_by_the_rule_for_urls() -> None:
    text = "GET https://h.example.com/some/long-path-here?key=query-value-1"
    value = f"first {RANDOM} https://h.example.com/some/long-path-here?key=query-value-1"
    assert shown(text, MANY=value) == "GET https://h.example.com/some/long-path-here?key=***"
