"""TODO."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    pass
if TYPE_CHECKING:
    pass
if TYPE_CHECKING:
    pass
if TYPE_CHECKING:
    pass

NOTIFICATIONS_CANCELLED: Final = "notifications/cancelled"


NOTIFICATIONS_TOOLS_LIST_CHANGED: Final = "notifications/tools/list_changed"


NOTIFICATIONS_PROMPTS_LIST_CHANGED: Final = "notifications/prompts/list_changed"


NOTIFICATIONS_RESOURCES_LIST_CHANGED: Final = "notifications/resources/list_changed"


NOTIFICATIONS_RESOURCES_UPDATED: Final = "notifications/resources/updated"


NOTIFICATIONS_TASKS: Final = "notifications/tasks"


NOTIFICATIONS_INITIALIZED: Final = "notifications/initialized"


SAMPLING_CREATE_MESSAGE: Final = "sampling/createMessage"


ELICITATION_CREATE: Final = "elicitation/create"


ROOTS_LIST: Final = "roots/list"


SERVER_REQUEST_METHODS: Final = frozenset({SAMPLING_CREATE_MESSAGE, ELICITATION_CREATE, ROOTS_LIST})


RESOURCES_READ: Final = "resources/read"


COMPLETION_COMPLETE: Final = "completion/complete"


TASKS_GET: Final = "tasks/get"


NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"


NOTIFICATIONS_MESSAGE: Final = "notifications/message"


LOGGING_SET_LEVEL: Final = "logging/setLevel"


NOTIFICATIONS_ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"


SUBSCRIPTIONS_LISTEN: Final = "subscriptions/listen"


TOOLS_CALL: Final = "tools/call"


TOOLS_LIST: Final = "tools/list"


SUBSCRIPTIONS_LISTEN: Final = "subscriptions/listen"


INITIALIZE: Final = "initialize"


TOOLS_LIST: Final = "tools/list"


TOOLS_CALL: Final = "tools/call"


TOOLS_CALL: Final = "tools/call"


PROMPTS_GET: Final = "prompts/get"


RESOURCES_READ: Final = "resources/read"


COMPLETION_COMPLETE: Final = "completion/complete"


TOOLS_CALL: Final = "tools/call"


NOTIFICATIONS_SUBSCRIPTIONS_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"


SUBSCRIPTIONS_LISTEN: Final = "subscriptions/listen"


LOGGING_SET_LEVEL: Final = "logging/setLevel"


TOOLS_CALL: Final = "tools/call"


TOOLS_CALL: Final = "tools/call"


PROMPTS_GET: Final = "prompts/get"
