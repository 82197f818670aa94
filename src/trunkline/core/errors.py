"""The stable error codes, and `Problem`, which carries one to a person or a program.

A code is never renumbered and never reused. It owns the numbers that each frontend needs (JSON-RPC error code, HTTP
status, exit status), so that an error looks the same whichever way a call came in.

A new code takes the number after the last of its family; a gap is not filled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

Executed = Literal["no", "unknown"]
Phase = Literal["queued", "sent", "partial"]
Severity = Literal["error", "warning"]


@dataclass(frozen=True, slots=True)
class Code:
    id: str
    title: str
    jsonrpc: int = -32603
    http: int = 500
    exit: int = 1

    def __str__(self) -> str:
        return self.id


CODES: Final[dict[str, Code]] = {}


def _code(id: str, title: str, jsonrpc: int = -32603, http: int = 500, exit: int = 1) -> Code:  # noqa: A002
    assert id not in CODES, f"{id} is taken"
    CODES[id] = Code(id, title, jsonrpc, http, exit)
    return CODES[id]


# 1xx configuration: reported by `trunkline check`, refused at start
CONFIG_UNREADABLE: Final = _code("TL100", "configuration file cannot be read", exit=2)
CONFIG_SYNTAX: Final = _code("TL101", "configuration is not valid YAML, JSON or TOML", exit=2)
UNKNOWN_KEY: Final = _code("TL102", "unknown key", exit=2)
WRONG_TYPE: Final = _code("TL103", "value of the wrong type", exit=2)
BAD_VALUE: Final = _code("TL104", "value not allowed here", exit=2)
MISSING_KEY: Final = _code("TL105", "required key is missing", exit=2)
DUPLICATE_KEY: Final = _code("TL106", "key given twice", exit=2)
AMBIGUOUS_SCALAR: Final = _code("TL107", "value that YAML versions read differently", exit=2)
CONFIG_TOO_LARGE: Final = _code("TL108", "configuration is too large once expanded", exit=2)
CONFIG_TOO_DEEP: Final = _code("TL109", "configuration is nested too deeply", exit=2)
ENV_NOT_SET: Final = _code("TL110", "environment variable is not set", exit=2)
BAD_NAME: Final = _code("TL111", "name not allowed", exit=2)
TOKEN_REQUIRED: Final = _code("TL112", "listening beyond loopback needs a token", exit=2)
CONFLICTING_KEYS: Final = _code("TL113", "keys that are mutually exclusive", exit=2)
LISTEN_FAILED: Final = _code("TL114", "address cannot be listened on", exit=2)
NOT_EDITED: Final = _code("TL115", "configuration file was left as it is", exit=2)
NOT_TRUSTED: Final = _code("TL116", "discovered file is not trusted", exit=2)
CLIENT_ONLY_KEY: Final = _code("TL120", "key that only a client understands", exit=0)
LITERAL_SECRET: Final = _code("TL121", "secret written into the file", exit=0)
OWN_ENTRY_SKIPPED: Final = _code("TL122", "entry for Trunkline itself skipped", exit=0)
NAME_CHANGED: Final = _code("TL123", "name replaced with a valid one", exit=0)
NO_EFFECT_YET: Final = _code("TL124", "key without effect in this version", exit=0)
OTHERS_CAN_WRITE: Final = _code("TL125", "file or folder that others can write", exit=0)
RELOAD_REFUSED: Final = _code("TL130", "new configuration was refused", http=422, exit=2)
STATE_NOT_WRITTEN: Final = _code("TL131", "state folder cannot be written")
NOT_ACCEPTED: Final = _code("TL132", "quarantined change was not restored")

# 2xx source: a server cannot be used, or not fully
SOURCE_DOWN: Final = _code("TL201", "server is down", jsonrpc=503, http=503)
SOURCE_DISABLED: Final = _code("TL202", "server is disabled", jsonrpc=503, http=503)
SOURCE_START_FAILED: Final = _code("TL203", "server could not be started or reached", jsonrpc=503, http=503)
SOURCE_AUTH_REQUIRED: Final = _code("TL204", "server requires a login", jsonrpc=503, http=503)
DRAINING: Final = _code("TL205", "gateway is shutting down", jsonrpc=503, http=503)
TOO_MANY_UPSTREAM_SESSIONS: Final = _code("TL206", "too many clients have a server of their own", jsonrpc=429, http=429)
GATEWAY_UNREACHABLE: Final = _code("TL207", "running gateway cannot be reached", jsonrpc=503, http=503)
SOURCE_OVER_LIMITS: Final = _code("TL208", "server went over its limits", jsonrpc=520, http=502)
PART_MISSING: Final = _code("TL209", "required program or package is not installed", jsonrpc=503, http=503)
NAME_COLLISION: Final = _code("TL210", "two tools have the same name", exit=0)
TOOL_NOT_USABLE: Final = _code("TL211", "definition of a tool cannot be used", exit=0)
DEFINITION_CHANGED: Final = _code("TL212", "definition of a tool changed", exit=0)
HIDDEN_CHARACTERS: Final = _code("TL213", "hidden characters in a name or description", exit=0)
SOURCE_STARTING: Final = _code("TL214", "server is still starting", exit=0)
PATHS_NOT_COMPARED: Final = _code("TL215", "protected paths are not compared after commands", exit=0)

# 3xx call: one request failed
UNKNOWN_TOOL: Final = _code("TL301", "unknown tool or server", jsonrpc=-32602, http=404)
QUEUE_FULL: Final = _code("TL303", "server's queue is full", jsonrpc=429, http=429)
CLIENT_LIMIT: Final = _code("TL304", "client has too many calls in flight", jsonrpc=429, http=429)
DEADLINE: Final = _code("TL305", "call timed out", jsonrpc=504, http=504)
SOURCE_LOST: Final = _code("TL306", "server was lost during the call", jsonrpc=520, http=502)
SOURCE_PROTOCOL: Final = _code("TL307", "server broke the protocol", jsonrpc=502, http=502)
REQUEST_TOO_LARGE: Final = _code("TL308", "request over the size limit", jsonrpc=413, http=413)
ANSWER_TOO_LARGE: Final = _code("TL309", "response over the size limit", jsonrpc=413, http=413)
CANCELLED: Final = _code("TL310", "call was cancelled", jsonrpc=499, http=499, exit=130)
UNKNOWN_PROMPT: Final = _code("TL311", "unknown prompt", jsonrpc=-32602, http=404)
UNKNOWN_RESOURCE: Final = _code("TL312", "unknown resource", jsonrpc=-32602, http=404)
UNKNOWN_TASK: Final = _code("TL313", "unknown task", jsonrpc=-32602, http=404)
NOT_ANSWERED: Final = _code("TL314", "client did not answer the server's request", http=502)
PATH_TRAVERSAL: Final = _code("TL315", "path traversal in an argument", jsonrpc=403, http=400)
RATE_LIMIT: Final = _code("TL316", "server's rate limit is reached", jsonrpc=429, http=429)
NO_SESSION_TOKEN: Final = _code("TL317", "no token for this session", jsonrpc=403, http=403)
NOT_PROVISIONED: Final = _code("TL318", "tool was not provisioned", jsonrpc=-32602, http=400)
BAD_TOOL_ID: Final = _code("TL319", "not a tool id", jsonrpc=-32602, http=400)
PARSE_ERROR: Final = _code("TL320", "message is not valid JSON", jsonrpc=-32700, http=400)
INVALID_REQUEST: Final = _code("TL321", "message is not a valid request", jsonrpc=-32600, http=400)
UNKNOWN_METHOD: Final = _code("TL322", "unknown method", jsonrpc=-32601, http=404)
INVALID_PARAMS: Final = _code("TL323", "parameters are not valid", jsonrpc=-32602, http=400)
HEADER_MISMATCH: Final = _code("TL324", "header and body disagree", jsonrpc=-32020, http=400)
UNSUPPORTED_VERSION: Final = _code("TL325", "protocol version not served", jsonrpc=-32022, http=400)
CAPABILITY_MISSING: Final = _code("TL326", "client did not declare a required capability", jsonrpc=-32021, http=400)
NOT_READ_ONLY: Final = _code("TL327", "tool is not read-only", jsonrpc=-32602, http=400)
CHANGE_UNDONE: Final = _code("TL328", "change at a protected path was undone", exit=0)

# 4xx access: a client, an app or an operator is refused
UNAUTHORIZED: Final = _code("TL401", "no valid credential", jsonrpc=401, http=401)
HOST_REFUSED: Final = _code("TL402", "Host not allowed", jsonrpc=421, http=421)
ORIGIN_REFUSED: Final = _code("TL403", "Origin not allowed", jsonrpc=403, http=403)
UNKNOWN_SESSION: Final = _code("TL404", "unknown session", jsonrpc=404, http=404)
TOO_MANY_SESSIONS: Final = _code("TL405", "too many sessions", jsonrpc=429, http=429)
BAD_HTTP: Final = _code("TL406", "HTTP request not understood", jsonrpc=-32600, http=400)
NOT_FOUND: Final = _code("TL407", "no such route", jsonrpc=-32601, http=404)
METHOD_NOT_ALLOWED: Final = _code("TL408", "HTTP method not allowed here", jsonrpc=-32600, http=405)
NOT_ACCEPTABLE: Final = _code("TL409", "no response type acceptable to the client", jsonrpc=-32600, http=406)
UNSUPPORTED_MEDIA: Final = _code("TL410", "request body is not JSON", jsonrpc=-32600, http=415)
COMMAND_NOT_ALLOWED: Final = _code("TL411", "servers with a command come from the file only", jsonrpc=403, http=403)
SERVER_EXISTS: Final = _code("TL412", "server of this name exists", jsonrpc=409, http=409)
UNKNOWN_SERVER: Final = _code("TL413", "no such server", jsonrpc=404, http=404)
SERVER_NOT_VALID: Final = _code("TL414", "description of a server is not valid", jsonrpc=-32602, http=422)
APP_REFUSED: Final = _code("TL415", "app was refused", jsonrpc=403, http=403)
NO_ROOM: Final = _code("TL416", "incomplete message was dropped to free memory", jsonrpc=503, http=503)

# 6xx agent runs: a workflow and the agents it starts
WORKFLOW_UNSUPPORTED: Final = _code("TL601", "workflow uses an unsupported feature", exit=2)
BAD_TRANSITION: Final = _code("TL602", "transition to a state that does not exist", exit=2)
BAD_INPUT: Final = _code("TL603", "input of a workflow is missing or wrong", exit=2)
BAD_REFERENCE: Final = _code("TL604", "reference to something that does not exist", exit=2)
PLUGIN_NOT_CHECKED: Final = _code("TL605", "plugin could not be started to check its operations", exit=2)
OUTPUT_IN_COMMAND: Final = _code("TL606", "value becomes code in a shell command", exit=0)
SHELL_POSITION: Final = _code("TL607", "value in a part of a command where it cannot be inserted safely", exit=2)
WORKFLOW_METADATA: Final = _code("TL608", "workflow key has no effect", exit=0)
SOURCE_NOT_USABLE: Final = _code("TL609", "source that a step uses cannot be started", exit=2)
AGENT_NOT_FOUND: Final = _code("TL610", "agent is not installed")
AGENT_FAILED: Final = _code("TL611", "agent failed")
TOOLS_NOT_LISTED: Final = _code("TL612", "agent never listed the tools")
NATIVE_TOOL: Final = _code("TL613", "agent had tools of its own")
STEP_TIMEOUT: Final = _code("TL614", "step exceeded its timeout")
STEP_INTERRUPTED: Final = _code("TL615", "run was interrupted", exit=130)
COMMAND_FAILED: Final = _code("TL616", "command of a step failed")
TOO_MANY_STEPS: Final = _code("TL617", "workflow went through too many steps")
ISOLATION_UNVERIFIED: Final = _code("TL618", "isolation is not verified for this version", exit=0)
AGENT_SLOW: Final = _code("TL619", "agent took too long to report its version")
MODEL_REFUSED: Final = _code("TL620", "request to the model failed")
MODEL_STREAM: Final = _code("TL621", "model's response was cut off or cannot be read")
MODEL_LOOP: Final = _code("TL622", "model announced tool calls and made none")
TURN_LIMIT: Final = _code("TL623", "model took too many turns")
MODEL_KEY: Final = _code("TL624", "key of the model's server is missing")
NO_ANSWER: Final = _code("TL625", "model ended without an answer")
WRITTEN_CALL: Final = _code("TL626", "model wrote a tool call as text")
KEY_NOT_SENT: Final = _code("TL627", "key is not sent to this server", exit=0)
INSTRUCTIONS_LEFT_OUT: Final = _code("TL628", "instructions of the project are left out", exit=0)
TOOLS_LOST: Final = _code("TL629", "agent lost its tools in the middle of a call")
OPTION_LEFT_OUT: Final = _code("TL630", "option that the model's server refuses", exit=0)
PROXY_UNKNOWN_KEY: Final = _code("USER.MCP_PROXY.UNKNOWN_KEY", "unknown key in `mcp_proxy`", exit=2)
PROXY_UNKNOWN_PLUGIN: Final = _code("USER.MCP_PROXY.UNKNOWN_PLUGIN", "plugin that is not declared", exit=2)
PROXY_UNKNOWN_SOURCE: Final = _code("USER.MCP_PROXY.UNKNOWN_SOURCE", "source that is not declared", exit=2)
PROXY_UNKNOWN_OPERATION: Final = _code("USER.MCP_PROXY.UNKNOWN_OPERATION", "operation the plugin lacks", exit=2)
PROXY_NAME_COLLISION: Final = _code("USER.MCP_PROXY.NAME_COLLISION", "two tools of a step have the same name", exit=2)
PROXY_EMPTY: Final = _code("USER.MCP_PROXY.EMPTY_PROXY", "`mcp_proxy` without any tool", exit=2)
PROXY_PROVIDER: Final = _code("USER.MCP_PROXY.UNSUPPORTED_PROVIDER", "provider may keep tools of its own", exit=0)

# 9xx internal
INTERNAL: Final = _code("TL900", "internal error", jsonrpc=-32603, http=500)


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One error or warning: what is wrong, where, and what to do about it.

    `where` is `file:line:column` for configuration and a server's name for a source. The fields after `severity` are
    for calls; `executed` says whether the tool may have run. `stderr_tail` is the last output of the source.
    `extra` are members of JSON-RPC's `error.data` that MCP requires with this code.
    """

    code: Code
    message: str
    where: str = ""
    hint: str = ""
    severity: Severity = "error"
    source: str = ""
    tool: str = ""
    phase: Phase = "queued"
    executed: Executed = "no"
    retryable: bool = False
    retry_after_ms: int | None = None
    stderr_tail: str = ""
    extra: tuple[tuple[str, object], ...] = ()

    def data(self) -> dict[str, object]:
        """The JSON-RPC `error.data` of this problem."""
        data: dict[str, object] = {"code": self.code.id}
        if self.source:
            data["source"] = self.source
        if self.tool:
            data["tool"] = self.tool
        data |= {"phase": self.phase, "executed": self.executed, "retryable": self.retryable}
        if self.retry_after_ms is not None:
            data["retryAfterMs"] = self.retry_after_ms
        if self.hint:
            data["hint"] = self.hint
        return data | dict(self.extra)

    def __str__(self) -> str:
        place = f"{self.where}: " if self.where else ""
        hint = f"\nhint: {self.hint}" if self.hint else ""
        return f"{place}{self.code}: {self.message}{hint}"


class GatewayError(Exception):
    """A problem as an exception. `details` are the individual faults if it stands for several."""

    def __init__(self, problem: Problem, details: tuple[Problem, ...] = ()) -> None:
        super().__init__(str(problem))
        self.problem = problem
        self.details = details
