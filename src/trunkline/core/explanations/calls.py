"""The codes 3xx: what can go wrong with one request."""

from __future__ import annotations

from typing import Final

from trunkline.core.explanations.explanation import Explanation

CALLS: Final = {
    "TL301": Explanation(
        "No tool or server goes by this name, or none that this client may see. Nothing ran.",
        (
            "a mistyped or outdated name",
            "the server is down for longer than its `grace`, so its tools are no longer listed",
            "the tool is hidden by `tools.allow` or `tools.deny`",
            "two servers have the tool, and the bare name does not say which one is meant",
        ),
        (
            "`trunkline tools` lists what there is; `trunkline explain --tool NAME` says why one is missing",
            "use the full address, `server.tool`",
        ),
    ),
    "TL303": Explanation(
        "The server has more to do than it gets done, and its waiting line is full. The tool did not run.",
        (
            "a burst of calls to a slow server",
            "a server that has stopped reading its input",
            "large calls, of all servers together, that hold more than `limits.unfinished_bytes`",
        ),
        (
            "call again later; `retryAfterMs` says when",
            "raise `gateway.limits.queue_per_source`, if memory allows and callers can wait",
        ),
    ),
    "TL304": Explanation(
        "This client has too many calls open at once. The tool did not run.",
        ("a program that starts calls without waiting for answers", "calls that hang, and are never cancelled"),
        ("wait for answers before calling again", "raise `gateway.limits.in_flight_per_client`"),
    ),
    "TL305": Explanation(
        "The server did not answer in the time a call has. Trunkline told it to stop; the tool may have run all the "
        "same (`executed` says so), so look before calling again.",
        (
            "the tool simply takes long",
            "the server hangs, or waits for something of its own",
            "the server was still starting when the time was up",
        ),
        (
            "give the tool more time: `tools: {timeouts: {TOOL: 300}}`, or `timeout` for the whole server",
            "a tool that reports progress gets longer by itself, up to `gateway.limits.call_seconds`",
            "`trunkline servers` shows whether the server is healthy",
        ),
    ),
    "TL306": Explanation(
        "The server went away after the call was sent and before it answered. Nobody can say whether the tool ran.",
        ("its process crashed or was killed", "the connection broke", "it stopped answering probes and was restarted"),
        (
            "look whether the tool did its work before calling again",
            "`trunkline servers` shows how the server ended and its last words",
        ),
    ),
    "TL307": Explanation(
        "The server sent something that is not MCP, so its answer cannot be used. The tool may have run.",
        (
            "a server that prints logs to its standard output",
            "a URL that is a web page, or an MCP endpoint of another transport",
            "a protocol version that Trunkline does not speak",
        ),
        (
            "make the server log to stderr only",
            "check the URL; MCP endpoints mostly end in `/mcp` or `/sse`, and `transport: sse` forces the old one",
            "update the server",
        ),
    ),
    "TL308": Explanation(
        "The request is larger than the gateway takes. The tool did not run.",
        ("a file or an image in the arguments",),
        ("pass a path or a link instead", "raise `gateway.limits.request_bytes`"),
    ),
    "TL309": Explanation(
        "The server's answer is larger than the gateway takes, and was dropped. The tool has most likely run.",
        ("a tool that returns whole files or tables",),
        ("ask for less: a page, a range, a filter", "raise `gateway.limits.message_bytes`"),
    ),
    "TL310": Explanation(
        "The caller gave up the call. The server was told; whether the tool stopped in time is up to the server.",
        ("the person or the agent stopped it", "the client's connection ended", "the client's own time limit"),
        ("nothing, if it was meant; else look at the client's time limit",),
    ),
    "TL311": Explanation(
        "No server offers a prompt of this name, or none that this client may see.",
        (
            "a mistyped or outdated name",
            "two servers have the prompt, and the bare name does not say which one is meant",
            "the server is down, or has not told yet what it offers",
        ),
        ("`prompts/list` shows the prompts there are", "use the full address, `server.prompt`"),
    ),
    "TL312": Explanation(
        "No server is known to have a resource of this URI: none lists it, none gave it to this client in a result, "
        "and it fits no template.",
        ("a mistyped or outdated URI", "several servers have resources, and the URI does not say which one is meant"),
        (
            "`resources/list` and `resources/templates/list` show what there is",
            "say which server is meant: `trunkline://SERVER/URI`",
        ),
    ),
    "TL313": Explanation(
        "No task of this client goes by this id.",
        (
            "an id that was made up, or given to another client",
            "the gateway was started anew since the task was made",
            "the server that had the task is no longer configured",
        ),
        ("call the tool again",),
    ),
    "TL314": Explanation(
        "In the middle of a call the server asked the client for something it cannot do without, and did not get it.",
        (
            "the client's user refused to let a model answer, or the client cannot ask one",
            "the client gave no answer within `gateway.limits.server_request_seconds`",
        ),
        ("call the tool again, and answer what it asks", "use a tool or a client that needs no such answer"),
    ),
    "TL315": Explanation(
        "An argument of the call leads out of a folder with `..` (path traversal), written plainly or hidden by an "
        "encoding, and the source is guarded against that. Nothing was sent: the tool did not run.",
        (
            "a relative path like `../other`",
            "a path with `%2e%2e`, full-width dots or a NUL character",
            "a text that quotes such a path",
        ),
        (
            "use a path without `..`",
            "switch the check off for a source that needs such arguments: `guard: {path_traversal: false}`",
        ),
    ),
    "TL316": Explanation(
        "More calls came for this server in a second than its `rate` allows. The tool did not run.",
        ("an agent that calls in a loop", "a `rate` that is too low"),
        ("try again after `retryAfterMs`", "raise `rate` of the source, or leave it out"),
    ),
    "TL317": Explanation(
        "The service wants a token of the session that calls it, and there is none for this one. Nothing was sent.",
        (
            "no token was put for this session or principal",
            "the service's `tokens` name other sessions",
            "the gateway was restarted: tokens from the API are not kept",
        ),
        (
            "put one: `PUT /api/sessions/{id}/token`, with the operator's token",
            'for a single user, write `tokens: {"*": "${SERVICE_TOKEN}"}` into the source',
        ),
    ),
    "TL318": Explanation(
        "`execute_tool` and the REST route run only tools that this session has found or was given, and this is none. "
        "Nothing was sent.",
        (
            "the tool was never found by `discover_tools`, or with `provision: false`",
            "it was found in another session, or under another `session` handle",
            "it was taken back by `unprovision_tools`",
            "the gateway was restarted: what sessions hold is not kept",
        ),
        (
            "find it with `discover_tools`, or name it to `provision_tools`",
            "call it by its name: a direct `tools/call` needs no provisioning",
            "write `require_provisioning: false` to let every tool be executed",
        ),
    ),
    "TL319": Explanation(
        "What was given as the id of a tool cannot be one. Nothing was sent.",
        ("a description or a sentence in place of an id", "an id without the name of its server"),
        ("use the `tool_id` that `discover_tools` gives: `server_tool`, or `server.tool`",),
    ),
    "TL320": Explanation(
        "The message is not JSON, so nothing could be done with it.",
        ("a message that was cut off", "text in another encoding than UTF-8", "a line break inside a message on stdio"),
        ("send one JSON object in UTF-8; on stdio, one in each line",),
    ),
    "TL321": Explanation(
        "The message is JSON, but not a JSON-RPC request of the protocol that is spoken here.",
        (
            '`"jsonrpc": "2.0"` is missing',
            "an `id` that is neither a string nor an integer, or that is still in use",
            "a request to `/mcp` without `Mcp-Session-Id` after `initialize`",
            "a batch of messages in one list",
        ),
        ("correct the client; the message says which member is wrong",),
    ),
    "TL322": Explanation(
        "The gateway does not have this method.",
        ("a mistyped method", "a part of MCP that Trunkline does not offer", "a method of another protocol version"),
        ("look at the `capabilities` of the `initialize` result: they say what can be asked for",),
    ),
    "TL323": Explanation(
        "The method exists, but its `params` are not what it takes. The tool did not run.",
        (
            "`arguments` that is no object",
            "`name` is missing",
            "a `cursor` from somewhere else",
            "an argument that a tool of the gateway or a REST route does not take",
        ),
        ("correct the client; the message says which member is wrong",),
    ),
    "TL324": Explanation(
        "In this protocol version, HTTP headers repeat what the body says, and here the two differ. Nothing ran: "
        "whatever stands between client and gateway may have decided by the header.",
        ("a client that fills in the headers wrongly", "a proxy that changes headers"),
        ("make the header equal to the body, or leave a proxy's hands off `Mcp-*` headers",),
    ),
    "TL325": Explanation(
        "The client asks for a protocol version that the gateway does not serve.",
        ("a client that is much older or newer", "a mistyped `MCP-Protocol-Version`"),
        ("use one of the versions in the hint", "update Trunkline or the client"),
    ),
    "TL326": Explanation(
        "The request is of a part of the protocol that a client must declare with each request, and this one did not.",
        ("a client that asks for tasks without declaring the extension",),
        ("declare what `data.requiredCapabilities` shows in the request's client capabilities",),
    ),
    "TL327": Explanation(
        "`execute_read_only_tool` runs only tools whose server says that they only read (`readOnlyHint`), and of this "
        "one it does not. Nothing was sent.",
        ("the tool changes something", "the tool only reads, but its server does not say so"),
        ("run it with `execute_tool`, which clients ask their users about",),
    ),
    "TL328": Explanation(
        "A warning: a command of Bash made or changed a file that says which programs are run outside of a sandbox "
        "(a hook of git, `.mcp.json`, `trunkline.yaml` …). The file was taken away before anything else was started, "
        "and what was there before is there again.",
        (
            "the agent was led astray by a text that it read",
            "the agent set something up as it was asked to: a hook, an editor's settings",
            "somebody saved such a file in an editor while the command ran",
        ),
        (
            "`trunkline protect` lists what was taken and why; read it before you take it back",
            "`trunkline protect accept ID` takes one back",
            "if agents are to change such places here, name that in the configuration: `protect: off`",
        ),
    ),
}
