"""The lists that clients ask for: everything the servers offer, page by page."""

from __future__ import annotations

from trunkline.core.errors import INVALID_PARAMS, Problem
from trunkline.core.seal import Sealer
from trunkline.doors.mcp.answer import refuse, result_of_ours
from trunkline.doors.mcp.asked import Asked
from trunkline.doors.mcp.hello import HINTS
from trunkline.router.router import Router


class Lists:
    def __init__(self, router: Router, sealer: Sealer) -> None:
        self._router = router
        self._sealer = sealer

    def give(self, asked: Asked) -> None:
        if "cursor" in asked.params:
            refuse(asked.answer, Problem(code=INVALID_PARAMS, message="Unknown `cursor`: the list comes in one page"))
            return
        self._router.when_listed(lambda: self._give(asked))

    def _give(self, asked: Asked) -> None:
        name, listing = self._list_of(asked)
        conversation = asked.conversation
        if conversation is None:
            result = b'{"resultType":"complete","%b":%b,%b}' % (name, listing, HINTS)
        else:
            conversation.told[name] = listing
            result = b'{"%b":%b}' % (name, listing)
        asked.answer.result(result_of_ours(result))

    def _list_of(self, asked: Asked) -> tuple[bytes, bytes]:
        method = asked.message.method
        if method == "tools/list":
            return b"tools", self._router.views.of(asked.caller).listing
        return (method or "").split("/")[0].encode(), b"[]"
