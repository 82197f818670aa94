from __future__ import annotations

import re

import pytest

from trunkline.core.errors import CODES, DEADLINE, SOURCE_DOWN, UNKNOWN_TOOL, Code, GatewayError, Problem


@pytest.mark.parametrize("code", CODES.values())
def test_a_code_owns_numbers_that_every_frontend_can_use(code: Code) -> None:
    assert re.fullmatch(r"TL[1234569]\d\d|USER\.MCP_PROXY\.[A-Z_]+", code.id)
    assert code.title
    assert 400 <= code.http <= 599
    assert code.exit in (0, 1, 2, 130)
    # Numbers of our own stay out of what JSON-RPC and MCP reserve; of the reserved ones only defined ones are used.
    reserved = -32768 <= code.jsonrpc <= -32000
    assert not reserved or code.jsonrpc in (-32700, -32600, -32601, -32602, -32603, -32020, -32021, -32022)


def test_what_a_program_is_told_has_only_what_is_known() -> None:
    bare = Problem(code=UNKNOWN_TOOL, message="x")
    assert bare.data() == {"code": "TL301", "phase": "queued", "executed": "no", "retryable": False}
    full = Problem(
        code=DEADLINE,
        message="x",
        source="s",
        tool="t",
        phase="sent",
        executed="unknown",
        retryable=True,
        retry_after_ms=0,
        hint="h",
    )
    assert full.data() == {
        "code": "TL305",
        "source": "s",
        "tool": "t",
        "phase": "sent",
        "executed": "unknown",
        "retryable": True,
        "retryAfterMs": 0,
        "hint": "h",
    }


def test_what_a_person_is_told_names_place_code_and_remedy() -> None:
    problem = Problem(code=SOURCE_DOWN, message="Server s is down", where="f.yaml:1:2", hint="restart it")
    assert str(problem) == "f.yaml:1:2: TL201: Server s is down\nhint: restart it"
    assert str(GatewayError(problem)) == str(problem)
