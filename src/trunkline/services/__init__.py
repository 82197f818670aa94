"""Tools of services, called from a program of one's own: a registry, a store of tokens, and the proxy between them.

    proxy = ToolProxy(registry, tokens)
    result = await proxy.route(ToolCall("billing", "session-1", "invoice", {"number": 7}))

Every call to a service goes through the proxy: it checks the arguments, finds the service and shows the session's
token.
"""

from __future__ import annotations

from trunkline.services.calls import ToolCall, ToolResult
from trunkline.services.errors import (
    PathTraversalError,
    ServiceError,
    ServiceNotFoundError,
    SessionTokenNotFoundError,
    ToolExecutionError,
)
from trunkline.services.proxy import ToolProxy
from trunkline.services.registry import InMemoryProjectServerRegistry, ProjectServerRecord, ProjectServerRegistry
from trunkline.services.sanitize import sanitize_tool_args
from trunkline.services.tokens import InMemorySessionTokenStore, SessionTokenStore

__all__ = [
    "InMemoryProjectServerRegistry",
    "InMemorySessionTokenStore",
    "PathTraversalError",
    "ProjectServerRecord",
    "ProjectServerRegistry",
    "ServiceError",
    "ServiceNotFoundError",
    "SessionTokenNotFoundError",
    "SessionTokenStore",
    "ToolCall",
    "ToolExecutionError",
    "ToolProxy",
    "ToolResult",
    "sanitize_tool_args",
]
