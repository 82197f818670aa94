"""Calls of services' tools from a program: a registry of services, a store of tokens, and the proxy between them.

    proxy = ToolProxy(registry, tokens)
    result = await proxy.route(ToolCall("billing", "session-1", "invoice", {"number": 7}))

Every call to a service goes through the proxy: it checks the arguments, finds the service and shows the session's
token.
"""

from __future__ import annotations

from trunkline.services.proxy import (
    PathTraversalError,
    ServiceError,
    ServiceNotFoundError,
    SessionTokenNotFoundError,
    ToolCall,
    ToolExecutionError,
    ToolProxy,
    ToolResult,
    sanitize_tool_args,
)
from trunkline.services.registry import (
    InMemoryProjectServerRegistry,
    InMemorySessionTokenStore,
    ProjectServerRecord,
    ProjectServerRegistry,
    SessionTokenStore,
)

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
