"""A legacy client after (or before) its handshake: an HTTP session, or the one client of a stdio door."""

from __future__ import annotations

from collections.abc import Callable

from trunkline.core.call import Caller, Json
from trunkline.core.server_request import ServerRequest
from trunkline.frontends.mcp.client_calls import ClientCalls
from trunkline.frontends.mcp.questions import ClientQuestions


class Conversation:
    """`session_if_asked` names the session of a client that has none of its own and can be asked something: then it
    needs servers of its own."""

    def __init__(self, caller: Caller, max_calls: int, *, session_if_asked: str = "") -> None:
        self.caller = caller
        self.version = ""
        self.calls = ClientCalls(max_calls)
        self.questions = ClientQuestions(self)
        self.greeted = False
        """Whether its `initialize` is answered: before that a client is told nothing."""
        self.told: dict[bytes, bytes] = {}
        """The lists as this client saw or was told of them last, by name."""
        self.session_if_asked = session_if_asked
        self.push: Callable[[bytes], None] | None = None
        """Sends a message to this client outside any request; None while there is no way to."""

    # -- as a client of the router: what its own servers ask and tell outside any call ----------------------------

    def send_request(self, server_request: ServerRequest) -> None:
        self.questions.ask(server_request)

    def send_notification(self, source: str, method: str, params: Json) -> None:
        self.questions.tell(method, params)
