"""What an isolated agent needs, whichever it is: a safe environment, an empty folder to start in, and its user's
configuration."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from math import isfinite
from pathlib import Path
from typing import Any, Final, cast

from trunkline.agents.providers.provider import LaunchRequest, UserSetup
from trunkline.config.json_parser import parse_json
from trunkline.config.problems import InvalidValue, Report
from trunkline.config.tree import ListNode, Node, Scalar, SkippedValue, Table
from trunkline.core.errors import AGENT_FAILED, GatewayError, Problem

WORK_FOLDER: Final = "work"
WORK_SUBFOLDERS: Final = (f"{WORK_FOLDER}/.git/objects", f"{WORK_FOLDER}/.git/refs")
WORK_FOLDER_FILES: Final = {f"{WORK_FOLDER}/.git/HEAD": "ref: refs/heads/main\n"}
"""The least that makes it a repository: agents look for configuration in the folders above, up to a repository."""

GIT_VARIABLES: Final = (
    *("GIT_CEILING_DIRECTORIES", "GIT_COMMON_DIR", "GIT_CONFIG_COUNT", "GIT_CONFIG_PARAMETERS", "GIT_DIR"),
    *("GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_PREFIX", "GIT_WORK_TREE"),
)
"""Variables that make git use another repository than that of the working folder. Git sets them in every hook."""

PROXY_VARIABLES: Final = ("ALL_PROXY", "HTTPS_PROXY", "HTTP_PROXY", "all_proxy", "http_proxy", "https_proxy")
"""Variables that would send requests for the probe's model, on this machine, elsewhere."""


def project_notice(request: LaunchRequest) -> str:
    """Tells the agent about the project, as it is started in another folder than its tools work in."""
    notice = (
        f"The project you work on is the folder {request.project}. Your tools work there: relative paths are relative"
        " to it, and absolute paths have to lie in it. The folder that you were started in is empty and of no use.\n"
    )
    return "\n\n".join(filter(None, [request.mitigation, notice, request.instructions]))


_NO_REPOSITORY: Final = "/dev/null"


def safe_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Variables for an isolated agent that is started in a project, so that it runs no programs that the project
    brings.

    Agents ask git about the project, and a repository can name programs that git then runs: monitors, filters. Relative
    folders in PATH would be the project's.
    """
    given, kept = environ.get("PATH", ""), absolute_path(environ)
    return {"GIT_DIR": _NO_REPOSITORY} | ({} if kept == given else {"PATH": kept})


def absolute_path(environ: Mapping[str, str]) -> str:
    """PATH without its relative folders. An empty entry is the working folder."""
    return ":".join(folder for folder in environ.get("PATH", "").split(":") if folder.startswith("/"))


_NO_INTEGER: Final = re.compile(r"[.eE]|[0-9]{300}")
_HINT: Final = "fix the file, or move it away; without it the agent might use another model than yours"


def user_text(home: UserSetup, name: str, file: Path) -> str:
    """The text of the user's file, empty if there is none. Raises GatewayError for one that cannot be read."""
    text = home.texts.get(name)
    if text is None and file in home.present:
        raise _unusable(str(file), "it cannot be opened, is not text, or is too large")
    return text or ""


def read_config(text: str, where: str) -> dict[str, Any]:
    """The object in JSON that may have comments and trailing commas. Raises GatewayError if there is none."""
    if not text.strip():
        return {}
    report = Report(where)
    try:
        value = _plain(parse_json(text, report, relaxed=True))
    except InvalidValue:
        value = None
    except RecursionError:
        raise _unusable(where, "it is nested too deeply") from None
    for problem in report.in_file_order():
        raise _unusable(problem.where, problem.message)
    if not isinstance(value, dict):
        raise _unusable(where, "it does not contain an object")
    return cast("dict[str, Any]", value)


def _unusable(where: str, why: str) -> GatewayError:
    message = f"Your configuration of the agent, `{where}`, cannot be used: {why}"
    return GatewayError(Problem(code=AGENT_FAILED, message=message, where=where, hint=_HINT))


def _plain(node: Node) -> object:
    match node:
        case Table():
            return {entry.key.text: _plain(entry.value) for entry in node.entries}
        case ListNode():
            return [_plain(item) for item in node.items]
        case SkippedValue():
            return node.value
        case Scalar(kind="null"):
            return None
        case Scalar(kind="boolean"):
            return node.text == "true"
        case Scalar(kind="number") if _NO_INTEGER.search(node.text):
            return number if isfinite(number := float(node.text)) else None  # JSON cannot express it
        case Scalar(kind="number"):
            return int(node.text)
        case Scalar():
            return node.text


def merged(*values: Mapping[str, Any]) -> dict[str, Any]:
    """Merge objects, recursively; later ones win."""
    result: dict[str, Any] = {}
    for key, value in (member for each in values for member in each.items()):
        current = result.get(key)
        both = isinstance(current, dict) and isinstance(value, dict)
        result[key] = merged(cast("dict[str, Any]", current), cast("dict[str, Any]", value)) if both else value
    return result


def picked(values: Mapping[str, Any], paths: tuple[tuple[str, ...], ...]) -> dict[str, Any]:
    """Only the values at these paths."""
    result: dict[str, Any] = {}
    for path in paths:
        found: Any = values
        for key in path:
            found = cast("dict[str, Any]", found).get(key) if isinstance(found, dict) else None
        for key in reversed(path):
            found = {key: found} if found is not None else None
        result = merged(result, found or {})
    return result


def json_text(value: object) -> str:
    """JSON in ASCII only: a text may contain lone surrogates, which cannot be written otherwise."""
    return json.dumps(value, separators=(",", ":"))
