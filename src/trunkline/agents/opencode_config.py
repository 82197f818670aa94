"""The configuration that OpenCode is run with: what of the user's is kept, and our server in it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from trunkline.agents.plan import SERVER, Asked
from trunkline.agents.user_config import json_text, merged, own_text, picked, read_config

RESULT_CHARACTERS: Final = 50_000
CONFIG_FILES: Final = ("config.json", "opencode.json", "opencode.jsonc")
"""In the order in which OpenCode reads them: the last one counts most."""
_OUTPUT: Final = {"max_lines": RESULT_CHARACTERS + 1, "max_bytes": 4 * RESULT_CHARACTERS}
_KEPT: Final = (("provider",), ("model",), ("small_model",), ("enabled_providers",), ("disabled_providers",))
"""By which the user comes to the model. All else may bring tools, servers, plugins and programs."""
_INLINE: Final = "OPENCODE_CONFIG_CONTENT"
_SCHEMA: Final = {"$schema": "https://opencode.ai/config.json"}
_QUIET: Final = {"autoupdate": False, "share": "disabled"}
OURS_ONLY: Final = {"*": "deny", f"{SERVER}_*": "allow"}
"""The later one counts."""
_TRIAL: Final = "trial"
TRIAL_MODEL: Final = f"{_TRIAL}/{_TRIAL}"
_REFERENCE: Final = re.compile(r"\{file:(?![~/])([^}]+)\}")


def isolated_config(asked: Asked, places: Mapping[str, Path]) -> str:
    """`places` are where the user's configuration was read from, by name."""
    config = _trial(asked) if asked.model_url else _kept(asked, places)
    isolated = {
        "tools": {"*": False, f"{SERVER}_*": True},
        "permission": OURS_ONLY,
        "snapshot": False,
        "formatter": False,
        "lsp": False,
    }
    return json_text(_SCHEMA | config | _QUIET | isolated | _ours(asked))


def additive_content(asked: Asked) -> str:
    """What is put on top of the user's own configuration, whatever that is."""
    return json_text(merged(_SCHEMA | _inline(asked), _QUIET | _ours(asked)))


def with_places(text: str, folder: Path) -> str:
    """References to files are relative to the file they stand in, of which this is a copy elsewhere."""
    return _REFERENCE.sub(lambda match: f"{{file:{folder / match[1]}}}", text)


def _kept(asked: Asked, places: Mapping[str, Path]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for name, place in places.items():
        text = with_places(own_text(asked.home, name, place), place.parent)
        kept = merged(kept, picked(read_config(text, str(place)), _KEPT))
    return merged(kept, picked(_inline(asked), _KEPT))


def _inline(asked: Asked) -> dict[str, Any]:
    return read_config(asked.home.environ.get(_INLINE, ""), _INLINE)


def _ours(asked: Asked) -> dict[str, Any]:
    """The timeout is longer than our own, which says more about what went wrong."""
    assert asked.server is not None
    server = {
        "type": "local",
        "command": [asked.server.command, *asked.server.args],
        "enabled": True,
        "timeout": int(asked.server.call_s * 1000) + 10_000,
    }
    return {"mcp": {SERVER: server}, "tool_output": _OUTPUT}


def _trial(asked: Asked) -> dict[str, Any]:
    provider = {
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": f"{asked.model_url}/v1", "apiKey": _TRIAL},
        "models": {_TRIAL: {"tool_call": True}},
    }
    return {"model": TRIAL_MODEL, "provider": {_TRIAL: provider}}
