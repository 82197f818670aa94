"""Which client a request is from, and of which version it is."""

from __future__ import annotations

import pytest
from tests.support.mcp_dialogue import MODERN_META

from trunkline.mcpserver.messages import INVALID_PARAMS, UNSUPPORTED_VERSION, Message, RpcError
from trunkline.mcpserver.peer import check_level, greeted, self_described
from trunkline.mcpserver.versions import CLIENT_CAPABILITIES, CLIENT_INFO, LEGACY, LOG_LEVEL, PROTOCOL_VERSION


@pytest.mark.parametrize("version", LEGACY)
def test_a_known_version_is_spoken(version: str) -> None:
    assert greeted({"protocolVersion": version}).version == version


@pytest.mark.parametrize("version", ["1.0", "2026-07-28", "2099-01-01", None, 3])
def test_any_other_is_answered_with_the_latest(version) -> None:
    peer = greeted({"protocolVersion": version})
    assert peer.version == LEGACY[-1]
    assert not peer.modern


@pytest.mark.parametrize("info", [None, 3, {}, {"name": 3, "version": []}])
def test_what_a_client_says_of_itself_may_be_anything(info) -> None:
    assert greeted({"clientInfo": info, "capabilities": 7}).client.name == ""


def request(**meta) -> Message:
    return Message("tools/list", {"_meta": {**MODERN_META, **meta}}, 1)


def test_a_modern_request_describes_itself() -> None:
    peer = self_described(
        request(**{CLIENT_INFO: {"name": "c", "version": "1"}, LOG_LEVEL: "error", CLIENT_CAPABILITIES: {"roots": {}}})
    )
    assert peer is not None
    assert peer.modern
    assert (peer.client.name, peer.client.version, peer.client.capabilities) == ("c", "1", {"roots": {}})
    assert peer.log_level == "error"


def test_a_legacy_request_does_not() -> None:
    assert self_described(Message("tools/list", {}, 1)) is None
    assert self_described(Message("tools/list", {"_meta": {"progressToken": 1}}, 1)) is None


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (Message("server/discover", {}, 1), INVALID_PARAMS),
        (Message("tools/list", {"_meta": {PROTOCOL_VERSION: "2026-07-28"}}, 1), INVALID_PARAMS),
        (request(**{PROTOCOL_VERSION: 3}), INVALID_PARAMS),
        (request(**{CLIENT_CAPABILITIES: []}), INVALID_PARAMS),
        (request(**{LOG_LEVEL: "loud"}), INVALID_PARAMS),
        (request(**{PROTOCOL_VERSION: "2099-01-01"}), UNSUPPORTED_VERSION),
        (request(**{PROTOCOL_VERSION: "2025-11-25"}), UNSUPPORTED_VERSION),
    ],
)
def test_a_request_that_describes_itself_badly_is_refused(message: Message, code: int) -> None:
    with pytest.raises(RpcError) as refused:
        self_described(message)
    assert refused.value.code == code


def test_the_versions_that_are_served_are_named() -> None:
    with pytest.raises(RpcError) as refused:
        self_described(request(**{PROTOCOL_VERSION: "2099-01-01"}))
    assert refused.value.data == {"supported": [*LEGACY, "2026-07-28"], "requested": "2099-01-01"}


def test_a_level_that_is_none_is_refused() -> None:
    check_level("debug")
    for level in ("verbose", None, ["debug"]):
        with pytest.raises(RpcError):
            check_level(level)
