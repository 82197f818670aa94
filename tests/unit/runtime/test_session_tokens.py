from __future__ import annotations

from trunkline.runtime.source_context import SessionTokens, is_token


def test_a_session_has_one_other_name_in_one_gateway() -> None:
    tokens, others = SessionTokens(), SessionTokens()
    assert tokens.alias("s") == tokens.alias("s") != tokens.alias("t")
    assert tokens.alias("s") != others.alias("s")
    assert "session" not in tokens.alias("session")


def test_tokens_are_put_and_dropped() -> None:
    tokens = SessionTokens()
    assert tokens.get("s") is None
    assert tokens.put("s", "one") and tokens.put("s", "two")
    assert tokens.get("s") == "two"
    assert tokens.drop("s") and not tokens.drop("s")


def test_what_can_stand_in_a_header_is_a_token() -> None:
    assert all(is_token(text) for text in ("a", "x.y-z_~+/=", "!" * 8192))
    assert not any(is_token(text) for text in ("", "a b", "a\n", "\r", "é", "a" * 8193))
