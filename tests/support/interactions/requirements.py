"""The table of features that must work for every client, through every frontend, between any two versions.

Each row is run by `tests/e2e/test_interactions.py` for each client, frontend and pair of versions that has the feature,
and shown in `docs/protocol.md`. What a client library cannot do is in its row, with the reason: nothing is left out
silently. The checks themselves are in `checks_*.py`, under the names used here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

ERAS: Final = ("legacy", "modern")
CLIENTS: Final = ("sdk", "fastmcp", "typescript")
LEGACY: Final = ("legacy",)
MODERN: Final = ("modern",)
AS_IS: Final = "as it is"


@dataclass(frozen=True, kw_only=True)
class Requirement:
    """One thing that works directly, so it has to work through the gateway.

    `clients` and `servers` are the eras that have it at all. `forward` says how it is translated for an old client and
    a new server, `backward` for a new client and an old server. `lacking` has the clients that cannot do it by
    themselves, each with the reason.
    """

    name: str
    says: str
    clients: tuple[str, ...] = ERAS
    servers: tuple[str, ...] = ERAS
    forward: str = AS_IS
    backward: str = AS_IS
    lacking: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def group(self) -> str:
        return self.name.partition(".")[0]


_ASKS_FORWARD = "forwarded"
_ASKS_BACKWARD = "suspended"
_ALWAYS_ASKS_FOR_LOGS = "FastMCP requests logs of every level with each request"

REQUIREMENTS: Final = (
    # -- tools -----------------------------------------------------------------------------------------------------
    Requirement(
        name="tools.list",
        says="Tools are listed as their server defines them, with title, schemas, annotations, icons and `_meta`",
    ),
    Requirement(name="tools.call", says="Arguments, text and structured content pass unchanged"),
    Requirement(
        name="tools.content",
        says="Text, images, audio and embedded resources keep their annotations and `_meta`",
    ),
    Requirement(name="tools.link", says="A resource link in a result can be read, listed or not"),
    Requirement(
        name="tools.any_json",
        says="Structured content may be any JSON value",
        servers=MODERN,
        forward="a value that is not an object is left out, with its schema; the text stays",
    ),
    Requirement(name="tools.failure", says="A failed tool is a result with `isError`"),
    Requirement(name="tools.error", says="A server's own JSON-RPC error keeps its code, message and data"),
    Requirement(name="tools.unknown", says="An unknown tool is an error with code -32602"),
    Requirement(
        name="tools.param_headers",
        says="Arguments marked with `x-mcp-header` in the schema are also sent to HTTP servers as headers",
        servers=MODERN,
        forward="the gateway sets the headers",
    ),
    # -- while a call runs -----------------------------------------------------------------------------------------
    Requirement(name="calls.progress", says="Progress reaches the caller that requested it, in order"),
    Requirement(
        name="calls.cancel",
        says="A call cancelled by its caller is cancelled at the server",
        forward="`notifications/cancelled` becomes the end of the stream (over stdio it stays a notification)",
        backward="the end of the stream becomes `notifications/cancelled`",
    ),
    Requirement(
        name="logging.level",
        says="A client gets servers' logs during its calls, from the level that it chose",
        forward="the session's level is sent with each request",
        backward="the level is set at the server when a request wants more than before; the rest is filtered",
    ),
    Requirement(
        name="logging.unasked",
        says="A client that did not request logs gets none",
        clients=MODERN,
        backward="the server's logs are dropped",
        lacking={("fastmcp", "modern"): _ALWAYS_ASKS_FOR_LOGS},
    ),
    # -- questions to the client -----------------------------------------------------------------------------------
    Requirement(
        name="questions.sampling",
        says="A server can request a completion from the caller's model (sampling)",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.form",
        says="A server can show the caller's user a form (elicitation)",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.declined",
        says="The user may decline, and the server is told",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.url",
        says="A server can send the caller's user to a URL",
        forward=f"{_ASKS_FORWARD}, with a generated `elicitationId`",
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.url_first",
        says="A server can require a visit to a URL before a call (error -32042)",
        servers=LEGACY,
        backward="the error becomes `input_required`; the retry repeats the call",
    ),
    Requirement(
        name="questions.url_done",
        says="A server can report that the visit to the URL is complete",
        clients=LEGACY,
        servers=LEGACY,
    ),
    Requirement(
        name="questions.roots",
        says="A server can request the caller's folders (roots)",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.at_once",
        says="A server can send several requests at once",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.rounds",
        says="A server can send further requests after a response, and its `requestState` comes back unchanged",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.in_prompt",
        says="A server can send requests during `prompts/get`",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.in_resource",
        says="A server can send requests during `resources/read`",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.own",
        says="A request reaches the client whose call caused it, and no other",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.declared",
        says="A server sees which requests the caller supports",
        forward="the capabilities from `initialize` are added to each request",
        backward="each set of declared capabilities has connections of its own",
    ),
    Requirement(name="questions.undeclared", says="A client that declared no capability gets no requests"),
    # -- resources -------------------------------------------------------------------------------------------------
    Requirement(name="resources.list", says="Resources are listed as their server defines them"),
    Requirement(name="resources.templates", says="Resource templates are listed as their server defines them"),
    Requirement(name="resources.read", says="Text and binary resources can be read"),
    Requirement(name="resources.read_template", says="A resource that only matches a template can be read"),
    Requirement(
        name="resources.unknown",
        says="An unknown resource is an error that names it",
        forward="-32602 becomes -32002",
        backward="-32002 becomes -32602",
    ),
    Requirement(
        name="resources.updated",
        says="Subscribers are notified when a resource changes",
        forward="`resources/subscribe` becomes a `subscriptions/listen` that the gateway holds",
        backward="`subscriptions/listen` becomes a `resources/subscribe` that the gateway holds",
    ),
    Requirement(name="resources.unwatched", says="After unsubscribing a client is not notified any more"),
    # -- prompts, completion ---------------------------------------------------------------------------------------
    Requirement(name="prompts.list", says="Prompts are listed with their arguments, as their server defines them"),
    Requirement(name="prompts.get", says="A prompt's arguments and messages pass unchanged"),
    Requirement(name="prompts.content", says="A prompt's messages may hold embedded resources and images"),
    Requirement(name="prompts.unknown", says="An unknown prompt is an error with code -32602"),
    Requirement(name="completion.prompt", says="Prompt arguments are completed, with the other arguments as context"),
    Requirement(
        name="completion.template", says="Template variables are completed, with the other variables as context"
    ),
    Requirement(
        name="completion.unknown", says="Completion for an unknown prompt or template is an error with code -32602"
    ),
    # -- about the server ------------------------------------------------------------------------------------------
    Requirement(name="server.instructions", says="A server's instructions reach the client"),
    Requirement(name="server.capabilities", says="The client sees the capabilities"),
    Requirement(
        name="server.ping",
        says="A ping is answered",
        clients=LEGACY,
        forward="the gateway answers it itself",
    ),
    Requirement(name="meta.both_ways", says="`_meta` passes in both directions, trace context included"),
    Requirement(name="lists.pages", says="Paged lists are complete; an unknown cursor is refused"),
    Requirement(
        name="lists.cache_hints",
        says="Lists and resources have cache hints",
        clients=MODERN,
        backward="no caching: `ttlMs` is 0, `cacheScope` is `private`",
    ),
    *(
        Requirement(
            name=f"lists.{kind}_changed",
            says=f"A change of the {kind} list is announced, and the new list has it",
            forward="the gateway listens, and notifies on the session's stream",
            backward="the gateway is notified on its own connection, and notifies each listener",
        )
        for kind in ("tools", "prompts", "resources")
    ),
)


def rows_for(kind: str, client_era: str, server_era: str) -> list[Requirement]:
    """What this client must be able to do with such a server."""
    return [
        row
        for row in REQUIREMENTS
        if client_era in row.clients and server_era in row.servers and (kind, client_era) not in row.lacking
    ]
