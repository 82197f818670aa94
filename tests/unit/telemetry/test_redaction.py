from __future__ import annotations

import base64
import html
import json
import re
from functools import partial
from urllib.parse import quote, quote_plus

import pytest

from trunkline.telemetry.redaction import Redactor

pytestmark = pytest.mark.law


def test_a_configured_secret_is_replaced_wherever_it_stands():
    assert Redactor(["hunter2!"])("a hunter2! b (hunter2!)") == "a *** b (***)"


def lower(text: str) -> str:
    return re.sub("%..", lambda match: match.group().lower(), quote(text, safe=""))


def in_base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode()


SPELLINGS = [str, repr, json.dumps, partial(json.dumps, ensure_ascii=False), lambda text: quote(text, safe="")]
SPELLINGS += [quote, quote_plus, lower, html.escape, in_base64, lambda text: json.dumps(text).replace("/", "\\/")]


@pytest.mark.parametrize("shown", ["p%40ss!word*9~x", "p%40ss%21word*9%7Ex", "p@ss!word*9~x"])
def test_a_secret_is_found_as_javascript_writes_it_into_a_url(shown):
    assert Redactor(["p@ss!word*9~x"])(f"https://x.example/?k={shown}") == "https://x.example/?k=***"


@pytest.mark.parametrize("spell", SPELLINGS)
def test_a_secret_is_found_in_the_spellings_programs_print_it_in(spell):
    secret = 'pä/ss "wörd"\nwith a second line'
    shown = Redactor([secret])(f"before {spell(secret)} after")
    assert shown.strip("beforat \"'=") == "***"


def test_a_secret_that_is_no_text_is_hidden_too():
    secret = b"hunter\xff2222".decode(errors="surrogateescape")
    redact = Redactor([secret])
    assert redact(f"a {secret} b") == "a *** b"
    assert redact(b"a hunter\xff2222 b".decode(errors="replace")) == "a *** b"


def test_the_longest_secret_wins_so_that_no_rest_of_it_is_left():
    assert Redactor(["abcd-efg", "abcd-efgh-1"])("abcd-efgh-1 abcd-efg") == "*** ***"


def test_secrets_that_overlap_leave_nothing_of_either():
    redact = Redactor(["abcd-1234", "1234-efgh", "4-efgh-56"])
    assert redact("x abcd-1234-efgh-56 y") == "x *** y"
    assert redact("abcd-1234abcd-1234") == "******"


def test_parts_of_a_header_and_of_a_key_file_are_secret_too():
    redact = Redactor(["Token 0123456789", "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----\n"])
    assert redact("sent 0123456789") == "sent ***"
    assert redact("MIIEvQIBADANBg") == "***"
    assert redact("Token of the day") == "Token of the day"


BODY = "MIIEvQIBADANBgkqhkiG9w0BAQEF\nAASCBKcwggSjAgEAAoIBAQC7VJTUt9Us8cKj"
KEY_FILE = f"-----BEGIN PRIVATE KEY-----\n{BODY}\n-----END PRIVATE KEY-----\n"
VALUE = "qX7vT2mK9wPz4LrB"


@pytest.mark.parametrize(
    "secret",
    [
        KEY_FILE,
        KEY_FILE.replace("\n", "\\n"),
        json.dumps({"type": "service_account", "private_key": KEY_FILE}),
        json.dumps({"private_key": KEY_FILE.replace("\n", "\\n")}),
    ],
)
def test_the_lines_of_a_key_are_secret_however_it_was_given(secret):
    shown = Redactor([secret])(f"cannot read {KEY_FILE}, see {json.dumps(KEY_FILE)}")
    assert not any(line in shown for line in BODY.splitlines())
    assert Redactor([secret])("-----BEGIN CERTIFICATE-----") == "-----BEGIN CERTIFICATE-----"


@pytest.mark.parametrize(
    "secret",
    [
        f"{VALUE},second-{VALUE}",
        f"first-key;{VALUE}",
        f"session={VALUE}; theme=dark",
        f"me:{VALUE}",
        f'Digest username="me", response="{VALUE}"',
        json.dumps({"keys": [{"value": VALUE}]}),
    ],
)
def test_parts_of_a_secret_with_a_structure_are_secret_too(secret):
    assert Redactor([secret])(f"unknown: {VALUE}") == "unknown: ***"


def test_a_secret_is_found_in_json_within_json_and_as_the_host_of_a_url():
    secret = 'q7X"vT2mK9wPz4LrB8'
    assert "vT2mK9wPz4LrB8" not in Redactor([secret])(json.dumps(json.dumps({"key": secret})))
    assert Redactor([VALUE])(f"cannot connect to {VALUE.lower()}") == "cannot connect to ***"


@pytest.mark.parametrize(
    "text",
    ["://" + ":" * 500_000, "://a" * 200_000, "bearer " * 100_000 + " " * 300_000, *(c * 1_000_000 for c in "a= -q")],
)
def test_a_long_text_is_looked_through_once(text):
    Redactor([VALUE])(text)


def test_short_values_are_settings_and_stay_readable():
    assert Redactor(["1", "no", "", "   ", "s3cr3t!"])("no 1 is left, s3cr3t!") == "no 1 is left, s3cr3t!"


def test_words_and_paths_stay_readable_also_within_a_secret():
    redact = Redactor(["production /var/lib/work", "Bearer development t0ken-1234"])
    text = "production in /var/lib/work for development"
    assert redact(text) == text
    assert redact("t0ken-1234") == "***"


def test_names_of_our_own_are_never_hidden():
    redact = Redactor(["github-mcp", "gitlab-mcp,s3cr3t-4711"], ["github-mcp", "gitlab-mcp"])
    redact.learn(["github-mcp", "late-mcp"], ["late-mcp"])
    text = "github-mcp, gitlab-mcp and late-mcp are ready"
    assert redact(f"{text}: s3cr3t-4711") == f"{text}: ***"


def test_many_secrets_are_all_found():
    secrets = [f"s3cr3t-{number}-{number * 7919 % 1000:03}" for number in range(2000)]
    assert Redactor(secrets)(" ".join(secrets)) == " ".join(["***"] * 2000)


def test_a_secret_that_is_learned_later_is_hidden_from_then_on():
    redact = Redactor(["first-secret-1"])
    redact.learn(["second-secret-2"])
    redact.learn(["second-secret-2"])
    assert redact("first-secret-1 second-secret-2") == "*** ***"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer eyJhbGciOi.x-y_z", "Authorization: Bearer ***"),
        ('{"authorization":"bearer abc"}', '{"authorization":"bearer ***"}'),
        ("a Bearer token is required", "a Bearer token is required"),
        ("Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic ***"),
        ("it wants basic authentication", "it wants basic authentication"),
        ("GET https://user:secret@example.com/x failed", "GET https://***@example.com/x failed"),
        ("GET https://example.com:8080/a@b failed", "GET https://example.com:8080/a@b failed"),
    ],
)
def test_unknown_tokens_and_url_passwords_are_recognised_by_their_shape(text, shown):
    assert Redactor()(text) == shown
