"""TODO."""

from __future__ import annotations

from typing import Final

CANCELLED: Final = "notifications/cancelled"


LIST_CHANGED: Final = "notifications/tools/list_changed"


PROMPTS_CHANGED: Final = "notifications/prompts/list_changed"


RESOURCES_CHANGED: Final = "notifications/resources/list_changed"


RESOURCE_UPDATED: Final = "notifications/resources/updated"


TASK_TOLD: Final = "notifications/tasks"


INITIALIZED: Final = "notifications/initialized"


SAMPLING: Final = "sampling/createMessage"


ELICITATION: Final = "elicitation/create"


ROOTS: Final = "roots/list"


SERVER_REQUEST_METHODS: Final = frozenset({SAMPLING, ELICITATION, ROOTS})
