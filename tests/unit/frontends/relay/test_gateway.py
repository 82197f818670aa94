"""Which addresses and tokens of a gateway are accepted, and the errors of one that does not respond."""

from __future__ import annotations

import pytest

from trunkline.core.errors import GatewayError
from trunkline.core.events import Events
from trunkline.frontends.relay.gateway import GatewayHttp, GatewayReply, check_target
from trunkline.runtime.http_client import HttpTarget


@pytest.mark.law
def test_an_address_that_cannot_be_asked_is_refused_without_what_is_secret_in_it() -> None:
    with pytest.raises(GatewayError) as refused:
        check_target(HttpTarget("http://user:pw@h:1/mcp/ü?key=k3y"), "")
    assert "http://h:1/mcp/ü is not the address" in refused.value.problem.message
    assert "pw" not in str(refused.value.problem)
    assert "k3y" not in str(refused.value.problem)


@pytest.mark.law
@pytest.mark.parametrize("token", ["two words", "line\nbreak", "ü", "nul\0"])
def test_a_token_that_cannot_be_shown_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(GatewayError) as refused:
        check_target(HttpTarget("http://h:1/mcp"), token)
    assert token not in str(refused.value.problem)


def gateway(token: str = "") -> GatewayHttp:
    return GatewayHttp(HttpTarget("http://h/mcp"), token=token, limit_bytes=1000, max_in_flight=1, events=Events())


def reply(status: int = 0, error: str = "", *, written: bool = True, token: str = "") -> GatewayReply:
    made = GatewayReply(gateway(token), b"", None, 1.0)
    made.status, made.error, made.written, made.body = status, error, written, b"<h1>"
    return made


async def test_problems_say_what_where_and_what_to_do() -> None:
    lost = reply(error="gone").problem().data()
    assert (lost["code"], lost["executed"], lost["retryable"]) == ("TL207", "unknown", False)
    away = reply(error="refused", written=False).problem()
    assert (away.executed, away.retryable) == ("no", True)
    assert "http://h/mcp" in away.message
    assert "trunkline up" in away.hint
    executed = {status: reply(status).problem().executed for status in (200, 307, 404, 500, 502, 504)}
    assert [status for status, it in executed.items() if it == "no"] == [307, 404]
    assert "requires a token" in reply(401).problem().message
    assert "refuses the token" in reply(401, token="t").problem().message


async def test_what_was_held_back_for_a_handshake_that_failed_never_ran() -> None:
    for failed in (reply(error="gone"), reply(200), reply(502)):
        assert failed.problem(sent=False).executed == "no"
