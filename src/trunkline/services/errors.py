"""What can go wrong with a call of a service's tool.

ServiceError
├── PathTraversalError          path traversal in an argument; nothing was sent
├── ServiceNotFoundError        nobody knows the service; nothing was sent
└── ToolExecutionError          no result came back
    └── SessionTokenNotFoundError   the session has no token; nothing was sent
"""

from __future__ import annotations


class ServiceError(Exception):
    """Base of the others."""


class PathTraversalError(ServiceError):
    """`path` says where in the arguments, as `args.files[0]`; the text itself is not repeated."""

    def __init__(self, path: str) -> None:
        super().__init__(f"Path traversal in `{path}`")
        self.path = path


class ServiceNotFoundError(ServiceError):
    def __init__(self, service_id: str) -> None:
        super().__init__(f"There is no service `{service_id}`")
        self.service_id = service_id


class ToolExecutionError(ServiceError):
    """`status` and `body` are those of the service's answer; None and empty where there was none.

    `executed` is `no` where not one byte was sent: then the tool cannot have run.
    """

    def __init__(self, message: str, *, status: int | None = None, body: str = "", executed: str = "unknown") -> None:
        super().__init__(message)
        self.status = status
        self.body = body
        self.executed = executed


class SessionTokenNotFoundError(ToolExecutionError):
    def __init__(self, session_id: str) -> None:
        super().__init__("There is no token for this session", executed="no")
        self.session_id = session_id
