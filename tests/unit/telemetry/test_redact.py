from __future__ import annotations

import json
from urllib.parse import quote

import pytest

from trunkline.telemetry.redact import Redactor

pytestmark = pytest.mark.law


def test_a_configured_secret_is_replaced_wherever_it_stands():
    assert Redactor(["hunter2!"])("a hunter2! b (hunter2!)") == "a *** b (***)"


@pytest.mark.parametrize("spell", [str, lambda text: quote(text, safe=""), json.dumps, repr])
def test_a_secret_is_found_in_the_spellings_programs_print_it_in(spell):
    secret = 'pä/ss "wörd"\nwith a second line'
    shown = Redactor([secret])(f"before {spell(secret)} after")
    assert "wörd" not in shown and "second" not in shown and "%22" not in shown and "\\u00" not in shown


def test_a_secret_that_is_no_text_is_hidden_too():
    secret = b"hunter\xff2222".decode(errors="surrogateescape")
    redact = Redactor([secret])
    assert redact(f"a {secret} b") == "a *** b"
    assert redact(b"a hunter\xff2222 b".decode(errors="replace")) == "a *** b"


def test_the_longest_secret_wins_so_that_no_rest_of_it_is_left():
    assert Redactor(["abcd", "abcd-efgh"])("abcd-efgh abcd") == "*** ***"


def test_parts_of_a_header_and_of_a_key_file_are_secret_too():
    redact = Redactor(["Token 0123456789", "-----BEGIN KEY-----\nMIIEvQIBADANBg\nkqhkiG9w0BAQEF\n-----END KEY-----\n"])
    assert redact("sent 0123456789") == "sent ***"
    assert redact("MIIEvQIBADANBg") == "***"
    assert redact("Token of the day") == "Token of the day"


def test_short_values_are_settings_and_stay_readable():
    assert Redactor(["1", "no", "", "   "])("no 1 is left") == "no 1 is left"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Authorization: Bearer eyJhbGciOi.x-y_z", "Authorization: Bearer ***"),
        ('{"authorization":"bearer abc"}', '{"authorization":"bearer ***"}'),
        ("a Bearer token is required", "a Bearer token is required"),
        ("GET https://user:secret@example.com/x failed", "GET https://***@example.com/x failed"),
        ("GET https://example.com:8080/a@b failed", "GET https://example.com:8080/a@b failed"),
    ],
)
def test_unknown_tokens_and_url_passwords_are_recognised_by_their_shape(text, shown):
    assert Redactor()(text) == shown
