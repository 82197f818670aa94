"""The settings that Gemini CLI is run with: what of the user's is kept, and our server in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from trunkline.agents.json_lines import mapping
from trunkline.agents.plan import SERVER, Asked
from trunkline.agents.user_config import json_text, merged, own_text, picked, read_config
from trunkline.config.env_file import parse_env_file

RESULT_CHARACTERS: Final = 50_000
_WRAPPING: Final = 1000
"""What Gemini puts around a result counts as well."""
_THRESHOLD: Final = RESULT_CHARACTERS + _WRAPPING
_KEPT: Final = (
    *(("security", "auth"), ("model", "name"), ("modelConfigs",), ("billing",), ("privacy",), ("ui", "theme")),
    *(("advanced", "dnsResolutionOrder"), ("general", "maxAttempts"), ("general", "retryFetchErrors")),
)
"""By which the user comes to the model. All else may bring tools, servers, hooks and programs."""
_QUIET: Final = {"general": {"enableAutoUpdate": False, "enableAutoUpdateNotification": False}}
_ISOLATED: Final = {
    "context": {"includeDirectoryTree": False, "loadMemoryFromIncludeDirectories": False},
    "experimental": {"enableAgents": False},
    "hooksConfig": {"enabled": False},
    "ide": {"enabled": False},
    "security": {"folderTrust": {"enabled": True}},
    "skills": {"enabled": False},
    "tools": {"sandbox": False, "truncateToolOutputThreshold": _THRESHOLD},
}
_OTHER_LOGINS: Final = ("GOOGLE_GENAI_USE_GCA", "GOOGLE_GENAI_USE_VERTEXAI")
_TRIAL: Final = {
    "privacy": {"usageStatisticsEnabled": False},
    "security": {"auth": {"selectedType": "gemini-api-key"}},
}


def isolated_settings(asked: Asked, place: Path) -> str:
    """`place` is where the user's own are, of which a trial knows nothing."""
    known = _TRIAL if asked.model_url else merged(_login(asked), picked(_own(asked, place), _KEPT))
    settings = merged(known, merged(_QUIET, _ISOLATED))
    return json_text(settings | {"mcpServers": {SERVER: _server(asked)}})


def additive_settings(asked: Asked, place: Path) -> str:
    """The user's, which are at `place`, with our server, which no list of theirs may leave out."""
    own = _own(asked, place)
    settings = merged(merged(_login(asked), own), merged(_QUIET, {"mcpServers": {SERVER: _server(asked)}}))
    _with_ours(settings, "mcp", "allowed", SERVER)
    _with_ours(settings, "tools", "core", f"mcp_{SERVER}_*")
    threshold = mapping(settings.get("tools")).get("truncateToolOutputThreshold")
    if not isinstance(threshold, int) or threshold < _THRESHOLD:
        settings = merged(settings, {"tools": {"truncateToolOutputThreshold": _THRESHOLD}})
    return json_text(settings)


def _own(asked: Asked, place: Path) -> dict[str, Any]:
    return read_config(own_text(asked.home, "settings", place), str(place))


def _login(asked: Asked) -> dict[str, Any]:
    """A key is a choice for somebody who made no other: with an address of the model beside it, Gemini sees none."""
    texts = asked.home.texts
    written = parse_env_file(texts.get("variables", texts.get("home_variables", "")))
    variables = written | dict(asked.home.environ)
    if not variables.get("GEMINI_API_KEY") or "true" in (variables.get(name) for name in _OTHER_LOGINS):
        return {}
    return {"security": {"auth": {"selectedType": "gemini-api-key"}}}


def _with_ours(settings: dict[str, Any], section: str, key: str, name: str) -> None:
    names = mapping(settings.get(section)).get(key)
    if isinstance(names, list):
        settings[section] = {**settings[section], key: [*names, name]}


def _server(asked: Asked) -> dict[str, Any]:
    """Its timeout is longer than our own, which says more about what went wrong."""
    assert asked.server is not None
    return {
        "command": asked.server.command,
        "args": list(asked.server.args),
        "timeout": int(asked.server.call_s * 1000) + 10_000,
        "trust": True,
    }
