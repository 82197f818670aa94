from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.support.waiting import until
from tests.unit.sources.mcp.memory_session import MemorySession, new_call, session_on

from trunkline.core.call import Call, Failure
from trunkline.core.errors import CANCELLED, SOURCE_LOST, Problem
from trunkline.sources.mcp.server_listing import ServerListing, resend_with_headers

HELLO = b'{"capabilities":{"tools":{"listChanged":true}}}'


def a_call(method: str = "tools/call") -> Call:
    call = new_call()
    call.method, call.params = method, b'{"name":"t","arguments":{"a":"x y"}}'
    call.headers = [(b"mcp-param-old", b"1")]
    return call


class Stage:
    def __init__(self, annotation: Any = "New", silent: bool = False) -> None:
        schema = {"type": "object", "properties": {"a": {"type": "string", "x-mcp-header": annotation}}}
        self.silent = silent
        self.tool = {"name": "t", "inputSchema": schema}
        self.session = MemorySession(self.respond)
        self.listing = ServerListing(session_on(self.session, "modern", HELLO), lambda _: None)
        self.sent: list[Call] = []

    def respond(self, session: MemorySession, message: dict[str, Any]) -> None:
        if not self.silent and "id" in message:
            session.answer(message, json.loads(json.dumps({"tools": [self.tool]})))

    def take(self, call: Call) -> bool:
        return resend_with_headers(self.listing, self.sent.append, call)


async def test_the_tools_are_listed_and_the_call_goes_again_with_new_headers() -> None:
    stage = Stage()
    call = a_call()
    assert stage.take(call)
    await until(lambda: stage.sent == [call], "it goes again")
    assert call.headers == [(b"mcp-param-new", b"x y")]
    assert not stage.take(call), "and that once"
    await stage.listing.close()


async def test_a_tool_that_is_annotated_badly_or_gone_has_no_headers() -> None:
    bad, gone = Stage(annotation=""), Stage()
    gone.tool["name"] = "other"
    for stage in (bad, gone):
        call = a_call()
        assert stage.take(call)
        await until(lambda stage=stage: bool(stage.sent), "it goes again")
        assert call.headers == []
        await stage.listing.close()
    assert not Stage().take(a_call("prompts/get")), "nothing else has such headers"


async def test_a_call_given_up_meanwhile_stays_so() -> None:
    stage = Stage()
    gone, other = a_call(), a_call()
    assert stage.take(gone)
    assert stage.take(other)
    gone.give_up(Failure(Problem(code=CANCELLED, message="no")))
    await until(lambda: stage.sent == [other], "only the other goes again")
    await stage.listing.close()


async def test_a_call_does_not_wait_for_a_server_that_is_lost_or_closed() -> None:
    stage = Stage(silent=True)
    call = a_call()
    stage.take(call)
    stage.session.lose(stage.session.problem(SOURCE_LOST, "gone"))
    await until(lambda: stage.sent == [call], "it goes to whoever comes next")
    later = a_call()
    stage.take(later)
    assert stage.sent == [call, later]
    await stage.listing.close()
    closed = Stage(silent=True)
    closed.take(call := a_call())
    await asyncio.sleep(0)
    await closed.listing.close()
    assert closed.sent == [call]
