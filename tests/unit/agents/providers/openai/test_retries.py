from __future__ import annotations

from email.utils import formatdate

import pytest

from trunkline.agents.providers.openai.client import (
    MAX_ATTEMPTS,
    FailedAttempt,
    Retries,
    broken_off,
    refused,
    retry_after,
    unreachable,
)
from trunkline.agents.providers.openai.request import ChatLimits
from trunkline.core.errors import MODEL_REFUSED, MODEL_STREAM, GatewayError

NOW = 1_800_000_000.0
PATIENCE = ChatLimits(first_retry_s=1.0, longest_retry_s=60.0, all_retries_s=100.0)


def answered(status: int, said: str = "", **headers: str) -> FailedAttempt:
    return refused("host", status, said, {name.replace("_", "-").encode(): v.encode() for name, v in headers.items()})


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({b"retry-after": b"7"}, 7.0),
        ({b"retry-after": b"0.5"}, 0.5),
        ({b"retry-after-ms": b"250", b"retry-after": b"7"}, 0.25),
        ({b"retry-after": formatdate(NOW + 30, usegmt=True).encode()}, 30.0),
        ({b"retry-after": formatdate(NOW - 30, usegmt=True).encode()}, 0.0),
        ({b"retry-after": b"soon"}, None),
        ({b"retry-after": b"-1"}, None),
        ({b"retry-after": b"nan"}, None),
        ({b"retry-after": b"inf"}, None),
    ],
)
def test_a_server_says_when_to_come_again(headers: dict[bytes, bytes], seconds: float | None) -> None:
    assert retry_after(headers, NOW) == seconds


@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504, 529])
def test_what_passes_is_tried_again_after_growing_waits(status: int) -> None:
    tries = Retries(PATIENCE)
    waits = [tries.after(answered(status)) for _ in range(MAX_ATTEMPTS - 1)]
    assert all(2**n / 2 <= wait <= 2**n for n, wait in enumerate(waits))
    with pytest.raises(GatewayError) as caught:
        tries.after(answered(status))
    assert caught.value.problem.code is MODEL_REFUSED


@pytest.mark.parametrize("status", [301, 307, 400, 401, 403, 404, 409, 413, 422, 501])
def test_what_stays_is_not_tried_again(status: int) -> None:
    with pytest.raises(GatewayError) as caught:
        Retries(PATIENCE).after(answered(status, "no such model"))
    assert caught.value.problem.code is MODEL_REFUSED


def test_a_used_up_quota_does_not_pass() -> None:
    with pytest.raises(GatewayError):
        Retries(PATIENCE).after(refused("host", 429, "", {}, lasting=True))


def test_a_server_is_not_asked_sooner_than_it_wants() -> None:
    assert Retries(PATIENCE).after(answered(429, retry_after="42")) == 42.0


def test_a_wait_beyond_the_limit_is_not_begun() -> None:
    with pytest.raises(GatewayError):
        Retries(PATIENCE).after(answered(429, retry_after="61"))


def test_all_waits_together_have_a_limit() -> None:
    tries = Retries(PATIENCE)
    assert tries.after(answered(429, retry_after="60")) == 60.0
    with pytest.raises(GatewayError):
        tries.after(answered(429, retry_after="60"))


def test_an_answer_that_broke_off_is_asked_for_twice_more() -> None:
    tries = Retries(PATIENCE)
    tries.after(broken_off("host", "cut"))
    tries.after(unreachable("host", "refused"))
    tries.after(broken_off("host", "cut"))
    with pytest.raises(GatewayError) as caught:
        tries.after(broken_off("host", "cut"))
    assert caught.value.problem.code is MODEL_STREAM
