"""The one table of what must work for every client, through every door, between every two versions.

Each row is run by `tests/e2e/test_interactions.py` for each client, door and pair of versions that has the feature, and
told in `docs/protocol.md`. What a client library cannot do is said in its row, with the reason: nothing is left out
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


_ASKS_FORWARD = "asked"
_ASKS_BACKWARD = "parked"
_ALWAYS_ASKS_FOR_LOGS = "FastMCP asks for logs of every level with each request"

REQUIREMENTS: Final = (
    # -- tools -----------------------------------------------------------------------------------------------------
    Requirement(
        name="tools.list",
        says="Tools are listed as their server has them: title, schemas, annotations, icons, `_meta` and all",
    ),
    Requirement(
        name="tools.call", says="A call's arguments arrive, and text and structured content come back unchanged"
    ),
    Requirement(
        name="tools.content",
        says="Text, images, audio and embedded resources come back with their annotations and `_meta`",
    ),
    Requirement(name="tools.link", says="A resource link in a result can be read, whether or not a list has it"),
    Requirement(
        name="tools.any_json",
        says="Structured content may be any JSON value",
        servers=MODERN,
        forward="a value that is no object is left out, with its schema; the text stays",
    ),
    Requirement(name="tools.failure", says="A tool that failed is a result with `isError`"),
    Requirement(name="tools.error", says="A server's own JSON-RPC error keeps its code, message and data"),
    Requirement(name="tools.unknown", says="A tool that nobody has is an error with the code -32602"),
    Requirement(
        name="tools.param_headers",
        says="Arguments that a schema marks with `x-mcp-header` reach an HTTP server in a header too",
        servers=MODERN,
        forward="the gateway sets the headers",
    ),
    # -- while a call runs -----------------------------------------------------------------------------------------
    Requirement(name="calls.progress", says="Progress reaches the caller that asked for it, in order"),
    Requirement(
        name="calls.cancel",
        says="A call that its caller takes back is cancelled at the server",
        forward="`notifications/cancelled` becomes the end of the stream (over stdio it stays)",
        backward="the end of the stream becomes `notifications/cancelled`",
    ),
    Requirement(
        name="logging.level",
        says="A client is told what servers log during its calls from the level on that it chose",
        forward="the session's level is sent along with each request",
        backward="the request's level is set at the server when it wants more than before; the rest is filtered",
    ),
    Requirement(
        name="logging.unasked",
        says="A client that did not ask for logs is sent none",
        clients=MODERN,
        backward="what the server says is dropped",
        lacking={("fastmcp", "modern"): _ALWAYS_ASKS_FOR_LOGS},
    ),
    # -- questions to the client -----------------------------------------------------------------------------------
    Requirement(
        name="questions.sampling",
        says="A server can let the caller's model answer",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.form",
        says="A server can let the caller's user fill in a form",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.declined",
        says="The user may decline, and the server is told so",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.url",
        says="A server can send the caller's user to a page",
        forward=f"{_ASKS_FORWARD}, with an `elicitationId` made up for it",
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.url_first",
        says="A server can demand a visit to a page before a call (error -32042)",
        servers=LEGACY,
        backward="the error becomes `input_required`; the retry makes the call again",
    ),
    Requirement(
        name="questions.url_done",
        says="A server can tell that the visit to the page is over",
        clients=LEGACY,
        servers=LEGACY,
    ),
    Requirement(
        name="questions.roots",
        says="A server can ask for the caller's folders",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.at_once",
        says="A server can ask several things at once",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.rounds",
        says="A server can ask again after an answer, and its `requestState` comes back as it was",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.in_prompt",
        says="A server can ask while a prompt is got",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.in_resource",
        says="A server can ask while a resource is read",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.own",
        says="A question reaches the client whose call caused it, and nobody else",
        forward=_ASKS_FORWARD,
        backward=_ASKS_BACKWARD,
    ),
    Requirement(
        name="questions.declared",
        says="A server sees which questions the caller can answer",
        forward="what was declared in `initialize` is stamped on each request",
        backward="each set of declared capabilities has connections of its own",
    ),
    Requirement(name="questions.undeclared", says="A client that declared nothing is asked nothing"),
    # -- resources -------------------------------------------------------------------------------------------------
    Requirement(name="resources.list", says="Resources are listed as their server has them"),
    Requirement(name="resources.templates", says="Resource templates are listed as their server has them"),
    Requirement(name="resources.read", says="A resource is read, be it text or binary"),
    Requirement(name="resources.read_template", says="A resource that only a template describes is read"),
    Requirement(
        name="resources.unknown",
        says="A resource that nobody has is an error that names it",
        forward="-32602 becomes -32002",
        backward="-32002 becomes -32602",
    ),
    Requirement(
        name="resources.updated",
        says="Whoever watches a resource is told when it changes",
        forward="`resources/subscribe` becomes a `subscriptions/listen` that the gateway holds",
        backward="`subscriptions/listen` becomes a `resources/subscribe` that the gateway holds",
    ),
    Requirement(name="resources.unwatched", says="Whoever stopped watching is told no more"),
    # -- prompts, completion ---------------------------------------------------------------------------------------
    Requirement(name="prompts.list", says="Prompts are listed with their arguments as their server has them"),
    Requirement(name="prompts.get", says="A prompt's arguments arrive, and its messages come back unchanged"),
    Requirement(name="prompts.content", says="A prompt's messages may hold embedded resources and images"),
    Requirement(name="prompts.unknown", says="A prompt that nobody has is an error with the code -32602"),
    Requirement(name="completion.prompt", says="Arguments of prompts are completed, with the others as context"),
    Requirement(
        name="completion.template", says="Variables of resource templates are completed, with the others as context"
    ),
    Requirement(name="completion.unknown", says="Completion for what nobody has is an error with the code -32602"),
    # -- about the server ------------------------------------------------------------------------------------------
    Requirement(name="server.instructions", says="A server's instructions reach the client"),
    Requirement(name="server.capabilities", says="The client is told what it can use"),
    Requirement(
        name="server.ping",
        says="A ping is answered",
        clients=LEGACY,
        forward="the gateway answers for itself",
    ),
    Requirement(name="meta.both_ways", says="`_meta` passes in both directions, trace context included"),
    Requirement(name="lists.pages", says="Lists that come in pages are complete; a cursor that nobody gave is refused"),
    Requirement(
        name="lists.cache_hints",
        says="Lists and resources say for how long and for whom they may be kept",
        clients=MODERN,
        backward="nothing may be kept: `ttlMs` is 0, `cacheScope` is `private`",
    ),
    *(
        Requirement(
            name=f"lists.{kind}_changed",
            says=f"A change of the {kind} is announced, and the new one is there",
            forward="the gateway listens, and tells on the session's stream",
            backward="the gateway hears it on its own connection, and tells each listener",
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
