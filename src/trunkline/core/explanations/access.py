"""The codes 4xx: who may come in, and in what shape."""

from __future__ import annotations

from typing import Final

from trunkline.core.explanations.explanation import Explanation

ACCESS: Final = {
    "TL401": Explanation(
        "The gateway wants a token, and none or a wrong one came with the request.",
        (
            "the client has no `Authorization` header",
            "the token was changed in the configuration but not in the client",
            "the clients' token was sent to a route that wants the operator's, or the other way round",
        ),
        (
            "send `Authorization: Bearer TOKEN`, with the value of `gateway.token`",
            "for operator routes use `gateway.operator_token`, or the one in the file that the log names at start",
        ),
    ),
    "TL402": Explanation(
        "The request names a host that this gateway is not known by. Browsers that were tricked into calling a local "
        "service look like this (DNS rebinding), so it is refused.",
        ("a name in `/etc/hosts`, an ingress or a tunnel in front of the gateway", "a container's or service's name"),
        ("add the name to `gateway.allowed_hosts`",),
    ),
    "TL403": Explanation(
        "The request comes from a web page that is not allowed to use this gateway.",
        (
            "a browser application on another host, or on another port of this machine",
            "a page that tries to reach local services behind your back",
            "a request that a page of another site had the browser send (`Sec-Fetch-Site`)",
        ),
        (
            "open the page from the gateway itself, or call the gateway from a program",
            "add the page's `host:port` to `gateway.allowed_hosts`, if a proxy puts it in front of the gateway",
        ),
    ),
    "TL404": Explanation(
        "The session the client names does not exist, or belongs to somebody else.",
        ("the gateway was restarted", "the session was not used for `gateway.limits.session_idle` seconds"),
        ("open a new session: send `initialize` without a session id; most clients do it by themselves",),
    ),
    "TL405": Explanation(
        "As many sessions are open as the gateway allows, and all of them are in use. Otherwise the one unused for "
        "longest gives way; where each has a stream open, one that was asked nothing for `session_idle` seconds.",
        ("many clients that keep a stream open", "more clients than the limit was made for"),
        ("raise `gateway.limits.sessions`, or lower `session_idle`", "end sessions with `DELETE /mcp`"),
    ),
    "TL406": Explanation(
        "The bytes that arrived are not an HTTP request the gateway is willing to interpret.",
        (
            "TLS spoken to the plain port (`https://` instead of `http://`)",
            "a header that comes twice",
            "a broken proxy",
        ),
        ("use `http://`, or put a proxy with TLS in front", "look at the message for the header that is wrong"),
    ),
    "TL407": Explanation(
        "The gateway has nothing at this path.",
        ("`/` or another path instead of `/mcp` in a client's configuration", "a mistyped path"),
        ("clients connect to `http://HOST:PORT/mcp`",),
    ),
    "TL408": Explanation(
        "The path exists, but not for this HTTP method.",
        ("`GET` where `POST` is wanted, or the other way round",),
        ("the answer's `Allow` header lists the methods",),
    ),
    "TL409": Explanation(
        "The client does not accept the kind of answer it would get.",
        ("`Accept` lacks `application/json` or `text/event-stream`",),
        ("send `Accept: application/json, text/event-stream`",),
    ),
    "TL410": Explanation(
        "The body of the request is not declared as JSON.",
        ("`Content-Type` is missing, or is a form's",),
        ("send `Content-Type: application/json`",),
    ),
    "TL411": Explanation(
        "A server that is a command can only be added in the configuration file. Otherwise whoever gets hold of the "
        "operator's token could run any program on the gateway's machine.",
        ("`command` in the body of `POST /api/mcp/servers`",),
        (
            "write it into the file, or use `trunkline add NAME -- COMMAND…`; the gateway takes it up by itself",
            "give a `url`, if the server also speaks HTTP",
        ),
    ),
    "TL412": Explanation(
        "The gateway already has a server of this name, and adding one never replaces another.",
        ("the server was added before", "the configuration file has a server of this name"),
        ("choose another name", "remove the other one first: `DELETE /api/mcp/servers/NAME`"),
    ),
    "TL413": Explanation(
        "The gateway has no server of this name.",
        ("a mistyped name; upper and lower case count", "the server was removed, or never survived a restart"),
        ("`trunkline servers` and `GET /api/mcp/servers` list the names",),
    ),
    "TL414": Explanation(
        "The server that was to be added is not described in a way the gateway can use. Nothing was added.",
        ("`name` or `url` is missing", "a mistyped key", "a URL without `http://` or `https://`"),
        ("correct what the list `problems` of the answer names; `/api/openapi.json` describes the body",),
    ),
    "TL415": Explanation(
        "An app dialled in and was not taken on. Its connection was closed.",
        (
            "the source has a `token`, and the app gave none or another",
            "an app of this name is connected already, or a configured server has the name",
            "its `register` message was not understood, or did not come in time",
        ),
        (
            "give the app the token of the source it dials",
            "end the other app, or give this one another name",
        ),
    ),
    "TL416": Explanation(
        "All messages together that have begun and not ended hold more memory than they may, and this one began first. "
        "Nothing of it was acted on.",
        ("a client that sends its request very slowly, or not at all", "many large uploads at once"),
        ("send the request again, in one go", "raise `gateway.limits.unfinished_bytes` where the load is honest"),
    ),
}
