"""The bodies of the REST routes as msgspec Structs, from which their JSON Schemas are made.

A class named `FooBody` is the component `Foo` of the OpenAPI document. The classes describe only: requests are parsed
more leniently, and responses are written where they are made; tests hold both against these schemas.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from trunkline.core.errors import Executed, Phase, Severity
from trunkline.core.source import State


def about(description: str, **rules: Any) -> Meta:
    return Meta(description=description, **rules)


T = TypeVar("T")
Omittable = T | UnsetType
NonNegativeInt = Annotated[int, Meta(ge=0)]
CodeText = Annotated[str, Meta(pattern="^TL[0-9]{3}$")]
Uri = Annotated[str, Meta(extra_json_schema={"format": "uri"})]
ServerName = Annotated[str, Meta(pattern="^[A-Za-z0-9_-]+$")]
SessionId = Annotated[str, Meta(min_length=1, max_length=256)]
ToolId = Annotated[str, about("The name to call a tool by: `server_tool`")]
Tokens = Annotated[NonNegativeInt, about("Estimated")]
SessionHandle = Annotated[
    str,
    about(
        "A name that the caller chooses, for a separate set of provisioned tools",
        max_length=200,
    ),
]
ProblemDetail = Annotated[str, about("What is wrong")]
Hint = Annotated[str, about("What to do")]


class Body(Struct, forbid_unknown_fields=True):
    """Base of the bodies: what derives from it is a component of the document."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls.__name__ = cls.__name__.removesuffix("Body")


# -- the gateway ------------------------------------------------------------------------------------------------------


class HealthBody(Body):
    status: Literal["ok"]


class ServerStateBody(Body):
    state: State


class ReadinessBody(Body):
    status: Literal["ready", "draining"]
    servers: Omittable[
        Annotated[dict[str, ServerStateBody], about("Left out if a token is required and none was sent")]
    ] = UNSET


class FaultBody(Body):
    detail: ProblemDetail
    code: Annotated[CodeText, about("Stable; `trunkline explain CODE` tells more")]
    severity: Severity
    hint: Omittable[Hint] = UNSET
    where: Omittable[Annotated[str, about("The file with line and column")]] = UNSET


class ProblemBody(Body):
    detail: ProblemDetail
    code: Annotated[CodeText, about("Stable; `trunkline explain CODE` tells more")]
    hint: Omittable[Hint] = UNSET
    problems: Omittable[Annotated[list[FaultBody], about("Every single fault")]] = UNSET


class JsonRpcMessageBody(Body, forbid_unknown_fields=False):
    jsonrpc: Literal["2.0"]
    method: Omittable[str] = UNSET
    id: Omittable[str | int] = UNSET


class ErrorObjectBody(Body, forbid_unknown_fields=False):
    code: int
    message: str
    data: Omittable[dict[str, Any]] = UNSET


class JsonRpcErrorBody(Body, forbid_unknown_fields=False):
    jsonrpc: Literal["2.0"]
    id: str | int | None
    error: ErrorObjectBody


# -- the operator's routes --------------------------------------------------------------------------------------------


class ServerBody(Body, rename="camel"):
    name: ServerName
    kind: Annotated[str, about("The kind of source, as in the configuration")]
    state: State
    tools: Annotated[NonNegativeInt, about("How many tools it offers at the moment")]
    restarts: NonNegativeInt
    in_flight: Annotated[NonNegativeInt, about("Calls it is working on")]
    queued: Annotated[NonNegativeInt, about("Calls that wait for it")]
    origin: Annotated[Literal["file", "api", "app"], about("Where it was declared; `app`: the app connected by itself")]
    prompts: Omittable[
        Annotated[NonNegativeInt, about("How many prompts it offers; like the next two, omitted if zero")]
    ] = UNSET
    resources: Omittable[Annotated[NonNegativeInt, about("How many resources it lists")]] = UNSET
    resource_templates: Omittable[Annotated[NonNegativeInt, about("How many resource templates it lists")]] = UNSET
    reason: Omittable[Annotated[str, about("Why it is in this state")]] = UNSET
    hint: Omittable[Annotated[str, about("What to do about it")]] = UNSET
    since: Omittable[Annotated[datetime, about("When it entered this state", tz=True)]] = UNSET
    last_error: Omittable[str] = UNSET
    stderr_tail: Omittable[Annotated[str, about("What it last wrote to its standard error")]] = UNSET
    protocol_version: Omittable[Annotated[str, about("The version of MCP spoken with it")]] = UNSET
    server: Omittable[Annotated[str, about("What it calls itself")]] = UNSET
    collisions: Omittable[
        Annotated[list[str], about("Its tools, prompts and resources whose name or URI another one holds")]
    ] = UNSET
    warnings: Omittable[list[str]] = UNSET


class ServersBody(Body):
    servers: list[ServerBody]


class NewServerBody(Body, forbid_unknown_fields=False):
    """A server as clients write it under `mcpServers`, with its name inside."""

    name: ServerName
    url: Uri
    headers: Omittable[dict[str, str]] = UNSET
    type: Omittable[Annotated[str, about("`http` or `sse`, to skip detection")]] = UNSET
    timeout: Omittable[Annotated[float, about("Of a call, in milliseconds", gt=0)]] = UNSET


class ServerAddedBody(Body):
    name: ServerName
    persisted: bool


class ServerNameResponseBody(Body):
    name: ServerName
    hint: Omittable[str] = UNSET


class NewServiceBody(Body, forbid_unknown_fields=False):
    """A service with the keys that a source of `kind: service` has in the configuration, and a few more."""

    endpoint: Annotated[Uri, about("Its address, before `/tools/execute`")]
    tools: Omittable[Annotated[list[dict[str, Any]], about("Definitions, where it does not list them")]] = UNSET
    token: Omittable[Annotated[str, about("The token to send it for everybody")]] = UNSET
    tokens: Omittable[dict[str, str]] = UNSET
    lease: Omittable[Annotated[float, about("Lease in seconds; 60 by default", gt=0)]] = UNSET


class ServiceRegisteredBody(Body):
    name: ServerName
    lease: Annotated[float, about("In seconds")]
    changed: Annotated[bool, about("Whether anything besides the lease changed")]


class SessionTokenBody(Body):
    token: Annotated[str, about("What follows `Authorization: Bearer`")]


class SessionIdResponseBody(Body, rename="camel"):
    session_id: Annotated[str, about("What services know the session by")]


class TokenDroppedBody(Body):
    removed: bool


class ReloadedBody(Body, rename="camel"):
    status: Literal["reloaded"]
    added: list[ServerName]
    replaced: Annotated[list[ServerName], about("Restarted or reconnected, because settings that require it changed")]
    adjusted: Annotated[list[ServerName], about("Changed without a new connection")]
    removed: list[ServerName]
    unchanged: Annotated[NonNegativeInt, about("How many continue as they were")]
    needs_restart: Annotated[list[str], about("Keys of `gateway` whose change waits for the next start")]
    warnings: list[str]


class FindingBody(Body):
    what: str
    hint: Omittable[Hint] = UNSET


class ToolExplainedBody(Body):
    name: Annotated[str, about("As in the request")]
    found: Annotated[bool, about("Whether a call by this name reaches a tool")]
    findings: list[FindingBody]
    listed: Omittable[Annotated[bool, about("Whether clients see it in the list")]] = UNSET
    address: Omittable[Annotated[str, about("`server.tool`")]] = UNSET
    exposed: Omittable[Annotated[str, about("The name in the list, if it has one")]] = UNSET
    server: Omittable[ServerName] = UNSET
    similar: Omittable[Annotated[list[str], about("Names that are similar")]] = UNSET


# -- tools ------------------------------------------------------------------------------------------------------------


class DiscoverBody(Body):
    query: Omittable[
        Annotated[str, about("What the tool should do, in plain words; may be left out only with `tags`")]
    ] = UNSET
    tags: Omittable[Annotated[list[str], about("Only tools with one of these; in a query, with commas too")]] = UNSET
    limit: Annotated[int, about("How many tools at most", ge=1, le=50)] = 5
    provision: Annotated[bool, about("Whether what is returned may be executed")] = True
    session: Omittable[SessionHandle] = UNSET
    explain: Annotated[bool, about("Say of each tool why it was found")] = False


class MatchedWordBody(Body):
    word: Annotated[str, about("Of the query")]
    field: Annotated[str, about("Where it was found")]
    share: Annotated[float, about("Its share of all that was found; they add up to 1")]


class WhyFoundBody(Body):
    words: list[MatchedWordBody]
    cosine: Annotated[float | None, about("How near in meaning, 1 is the same; null if it is not known")]
    score: Annotated[float, about("What tools are ranked by; it means nothing beyond this search")]
    named: Omittable[
        Annotated[
            bool, about("The query is the name of this tool, so it comes first", extra_json_schema={"const": True})
        ]
    ] = UNSET


class FoundToolBody(Body, rename={"input_schema": "inputSchema"}):
    tool_id: ToolId
    description: str
    input_schema: Omittable[Annotated[dict[str, Any], about("As its server wrote it, without whitespace")]] = UNSET
    read_only: Omittable[
        Annotated[bool, about("Its server says that it only reads", extra_json_schema={"const": True})]
    ] = UNSET
    why: Omittable[Annotated[WhyFoundBody, about("With `explain` only")]] = UNSET


class ToolRefusedBody(Body):
    tool_id: ToolId
    why: str
    tokens: Omittable[Tokens] = UNSET


class DiscoveredBody(Body, rename={"not_ready": "notReady"}):
    tools: list[FoundToolBody]
    provisioned: Annotated[bool, about("Whether they may be executed now")]
    tokens: Annotated[NonNegativeInt, about("Total tokens of the caller's provisioned tools")]
    budget: Annotated[NonNegativeInt, about("The token budget for them")]
    hint: Omittable[Annotated[str, about("What to do if nothing was found")]] = UNSET
    left_out: Omittable[Annotated[list[ToolRefusedBody], about("Found, but over the budget")]] = UNSET
    more: Omittable[Annotated[list[ToolId], about("The next best")]] = UNSET
    servers: Omittable[Annotated[dict[str, str], about("The servers' instructions, sent once per session")]] = UNSET
    not_ready: Omittable[Annotated[list[str], about("Servers whose tools may be missing here, and their states")]] = (
        UNSET
    )


class ProvisionBody(Body):
    tool_ids: list[ToolId]
    context_tokens: Omittable[Annotated[int, about("The budget from now on", ge=1)]] = UNSET
    session: Omittable[SessionHandle] = UNSET


class ToolProvisionedBody(Body):
    tool_id: ToolId
    tokens: Tokens


class ProvisionedBody(Body):
    provisioned: list[ToolProvisionedBody]
    tokens: Annotated[NonNegativeInt, about("Total tokens of the caller's provisioned tools")]
    budget: Annotated[NonNegativeInt, about("The token budget for them")]
    refused: Omittable[list[ToolRefusedBody]] = UNSET


class UnprovisionBody(Body):
    tool_ids: list[ToolId]
    session: Omittable[SessionHandle] = UNSET


class UnprovisionedBody(Body):
    removed: list[ToolId]
    tokens: Annotated[NonNegativeInt, about("Total tokens of the caller's provisioned tools")]
    budget: Annotated[NonNegativeInt, about("The token budget for them")]
    unknown: Omittable[Annotated[list[ToolId], about("The caller did not hold these")]] = UNSET


class ExecuteBody(Body):
    tool_id: ToolId
    arguments: Omittable[dict[str, Any]] = UNSET
    session: Omittable[SessionHandle] = UNSET


class ExecutedBody(Body):
    result: Annotated[dict[str, Any], about("The result of MCP's `tools/call`, as the server wrote it")]


class CallProblemBody(Body, rename="camel"):
    detail: ProblemDetail
    code: Omittable[Annotated[CodeText, about("Absent if the server itself refused the call")]] = UNSET
    hint: Omittable[Hint] = UNSET
    source: Omittable[Annotated[str, about("The server")]] = UNSET
    tool: Omittable[str] = UNSET
    phase: Omittable[Annotated[Phase, about("How far the call came")]] = UNSET
    executed: Omittable[Annotated[Executed, about("Whether the tool may have run")]] = UNSET
    retryable: Omittable[Annotated[bool, about("Whether trying again may help")]] = UNSET
    retry_after_ms: Omittable[NonNegativeInt] = UNSET
    error: Omittable[Annotated[dict[str, Any], about("The JSON-RPC error of the server, as it wrote it")]] = UNSET


class ServerCostBody(Body):
    name: str
    tools: NonNegativeInt
    tokens: Tokens


class ToolCostBody(Body):
    tool_id: ToolId
    server: str
    tokens: Tokens


class AllModeBody(Body):
    tokens: Annotated[NonNegativeInt, about("The whole list")]


class SearchModeBody(Body):
    tokens: Annotated[NonNegativeInt, about("The list of a client that has found nothing yet")]
    dialogue: Annotated[NonNegativeInt, about("The most that finding and listing tools costs together")]


class AutoModeBody(Body):
    chosen: Literal["all", "search"]
    why: str


class DisclosureModesBody(Body):
    all: AllModeBody
    search: SearchModeBody
    auto: AutoModeBody


class TokenBudgetBody(Body):
    servers: list[ServerCostBody]
    modes: DisclosureModesBody
    disclosure: Annotated[Literal["all", "search", "auto"], about("As configured")]
    shown: Annotated[Literal["all", "search"], about("What clients without a search of their own see")]
    context_tokens: Annotated[NonNegativeInt, about("The budget of a session")]
    tools: Omittable[list[ToolCostBody]] = UNSET


SCHEMAS: Final[dict[str, Any]] = {
    "ServerName": msgspec.json.schema(ServerName),
    "SessionId": msgspec.json.schema(SessionId),
    **msgspec.json.schema_components(Body.__subclasses__(), ref_template="#/components/schemas/{name}")[1],
}
"""All of the above as JSON Schema (2020-12), by name."""
