"""The names of MCP's methods (requests of clients, requests of servers, notifications), and what sets some apart.

`notifications/progress` is `PROGRESS` of `trunkline.core.call`, which needs it.
"""

from __future__ import annotations

from typing import Final

INITIALIZE: Final = "initialize"
PING: Final = "ping"
SERVER_DISCOVER: Final = "server/discover"
SUBSCRIPTIONS_LISTEN: Final = "subscriptions/listen"

TOOLS_LIST: Final = "tools/list"
TOOLS_CALL: Final = "tools/call"
PROMPTS_LIST: Final = "prompts/list"
PROMPTS_GET: Final = "prompts/get"
RESOURCES_LIST: Final = "resources/list"
RESOURCES_TEMPLATES_LIST: Final = "resources/templates/list"
RESOURCES_READ: Final = "resources/read"
RESOURCES_SUBSCRIBE: Final = "resources/subscribe"
RESOURCES_UNSUBSCRIBE: Final = "resources/unsubscribe"
COMPLETION_COMPLETE: Final = "completion/complete"
LOGGING_SET_LEVEL: Final = "logging/setLevel"

TASKS_GET: Final = "tasks/get"
TASKS_RESULT: Final = "tasks/result"
TASKS_UPDATE: Final = "tasks/update"
TASKS_CANCEL: Final = "tasks/cancel"

SAMPLING_CREATE_MESSAGE: Final = "sampling/createMessage"
ELICITATION_CREATE: Final = "elicitation/create"
ROOTS_LIST: Final = "roots/list"

NOTIFICATIONS_INITIALIZED: Final = "notifications/initialized"
NOTIFICATIONS_CANCELLED: Final = "notifications/cancelled"
NOTIFICATIONS_MESSAGE: Final = "notifications/message"
NOTIFICATIONS_TOOLS_LIST_CHANGED: Final = "notifications/tools/list_changed"
NOTIFICATIONS_PROMPTS_LIST_CHANGED: Final = "notifications/prompts/list_changed"
NOTIFICATIONS_RESOURCES_LIST_CHANGED: Final = "notifications/resources/list_changed"
NOTIFICATIONS_RESOURCES_UPDATED: Final = "notifications/resources/updated"
NOTIFICATIONS_ROOTS_LIST_CHANGED: Final = "notifications/roots/list_changed"
NOTIFICATIONS_TASKS: Final = "notifications/tasks"
NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
NOTIFICATIONS_ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"

SERVER_REQUEST_METHODS: Final = frozenset({SAMPLING_CREATE_MESSAGE, ELICITATION_CREATE, ROOTS_LIST})
NAME_PARAMETERS: Final = {
    TOOLS_CALL: "name",
    PROMPTS_GET: "name",
    RESOURCES_READ: "uri",
    TASKS_GET: "taskId",
    TASKS_UPDATE: "taskId",
    TASKS_CANCEL: "taskId",
}
"""The parameter that the `Mcp-Name` header repeats, by method."""
MAY_REQUIRE_INPUT: Final = frozenset({TOOLS_CALL, PROMPTS_GET, RESOURCES_READ})
"""The methods whose result may be `input_required`."""
WITH_CONTENT: Final = frozenset({TOOLS_CALL, PROMPTS_GET})
"""The methods whose result has content blocks, which may have to be translated for an older client."""
