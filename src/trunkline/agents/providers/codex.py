"""Codex: how it is started so that its tools are ours, or ours beside its own. docs/agents/codex.md says why."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from trunkline.agents.events import (
    AgentError,
    AgentEvent,
    AgentText,
    FinalAnswer,
    ModelRetry,
    NativeToolUsed,
    TokenUsage,
)
from trunkline.agents.loose_json import count, listed, mapping, object_of, text
from trunkline.agents.providers.isolation import safe_environment
from trunkline.agents.providers.provider import SERVER, HomeQuery, LaunchPlan, LaunchRequest
from trunkline.core.errors import AGENT_FAILED, GatewayError, Problem

# What it takes to run Codex: its options, its environment, and the folder that it finds in place of its own.

_NAMESPACE: Final = f"mcp__{SERVER.replace('-', '_')}/"
_OWN: Final = "codex"
_CATALOG: Final = "catalog.json"
_MACHINE: Final = {
    "machine": Path("/etc/codex/config.toml"),
    "managed": Path("/etc/codex/managed_config.toml"),
}
"""Settings of the whole machine, which Codex reads whatever its own folder is."""
_LOGIN: Final = ("auth.json", "auth.lock")
_OVERRIDE: Final = "AGENTS.override.md"
_AGENTS: Final = "AGENTS.md"
"""In the user's folder, what the user tells every agent; in a project, what that tells it. The former counts more."""
_SESSIONS: Final = "sessions"
_SETTINGS: Final = "config.toml"
_UNATTENDED: Final = (("exec",), ("e",))
"""Subcommands that ask nobody whether a repository is trusted."""
_START_S: Final = 60
_RESULT_CHARS: Final = 40_000
_RESULT_TOKENS: Final = _RESULT_CHARS
"""It counts four bytes as a token, and no character has more."""
_ELSEWHERE: Final = ("CODEX_EXEC_SERVER_URL", "CODEX_SQLITE_HOME")
"""Where it would start our server, or keep its state, in another place than this run's."""
_OFF: Final = (
    *("apps", "code_mode_host", "daemon_auto_start", "goals", "hooks", "image_generation", "multi_agent", "plugins"),
    *("remote_plugin", "shell_snapshot", "shell_tool", "skill_search", "sleep_tool", "tool_suggest", "unified_exec"),
    *("view_image",),
)
"""Features that bring tools, start programs, or load what others wrote."""
_ISOLATED: Final[dict[str, Any]] = {
    "agents.enabled": False,
    "analytics.enabled": False,
    "approval_policy": "never",
    "check_for_update_on_startup": False,
    "include_permissions_instructions": False,
    "notify": [],
    "project_doc_max_bytes": 0,
    "sandbox_mode": "read-only",
    "skills.bundled.enabled": False,
    "skills.include_instructions": False,
    "tool_output_token_limit": _RESULT_TOKENS,
    "tools.experimental_request_user_input.enabled": False,
    "tools.update_plan.enabled": False,
    "web_search": "disabled",
}
_ABOUT_TOOLS: Final = (
    f"Everything you do with files, commands and services goes through the tools of the MCP server `{SERVER}`. "
    "They can do what their descriptions say; that your environment context calls the file system read-only does not "
    "concern them."
)
_TRIAL: Final = "trunkline-trial"


class Codex:
    name = "codex"
    program = "codex"
    install = "npm install -g @openai/codex"
    verified = frozenset({"0.166.0"})
    instructions = (_OVERRIDE, _AGENTS)
    result_chars = _RESULT_CHARS

    def is_ours(self, tool: str, /) -> bool:
        return tool.startswith(_NAMESPACE) or tool.removeprefix("functions/") in RESOURCE_TOOLS

    def home_query(self, home: Path, environ: Mapping[str, str], /) -> HomeQuery:
        own = _own_folder(home, environ)
        return HomeQuery(
            texts={"config": own / _SETTINGS, **{name: own / name for name in (_OVERRIDE, _AGENTS)}, **_MACHINE},
            command_outputs={"models": ("debug", "models", "--bundled")},
            links=tuple(own / name for name in (*_LOGIN, _SESSIONS, _SETTINGS)),
        )

    def plan(self, request: LaunchRequest, /) -> LaunchPlan:
        if request.mode == "native":
            return LaunchPlan(
                argv=_argv(request, ("--skip-git-repo-check",), _wishes(request, "")), stdin=request.prompt or ""
            )
        settings = CodexConfig(request.home.texts.get("config", ""))
        return _isolated(request, settings) if request.mode == "intercept" else _beside(request, settings)

    def parser(self) -> CodexOutputParser:
        return CodexOutputParser()


PROVIDER: Final = Codex()


# Only our tools -------------------------------------------------------------------------------------------------------


def _isolated(request: LaunchRequest, settings: CodexConfig) -> LaunchPlan:
    """It finds a folder of this run's where its own would be: with the user's login, and of the user's settings only
    those for the model. It is not started below its folder for temporary files, where it would not work fully."""
    _need_settings(request, settings)
    catalog = strict_catalog(request.home.command_outputs.get("models", ""))
    if not catalog and request.version in Codex.verified:
        raise GatewayError(_no_catalog())
    options = {**_without_servers(request), **_server(request), **_ISOLATED}
    if catalog:
        options["model_catalog_json"] = str(request.run / _CATALOG)
    if request.prompt is None or request.version not in Codex.verified:
        options |= _untrusted((request.project, *request.project.parents))
    own = request.run / _OWN
    return LaunchPlan(
        argv=_argv(
            request,
            ("--ephemeral", "--ignore-rules", "--skip-git-repo-check"),
            (*_options(options), *_features_off(request), *_wishes(request, _told(settings, _ABOUT_TOOLS, request))),
        ),
        env={"CODEX_HOME": str(own), "TMPDIR": str(request.run / "tmp")} | safe_environment(request.home.environ),
        unset=_ELSEWHERE,
        files={
            f"{_OWN}/{_SETTINGS}": settings.for_model(),
            **({_CATALOG: catalog} if catalog else {}),
            **({f"{_OWN}/{_AGENTS}": told} if (told := _instructions(request)) else {}),
        },
        folders=("tmp",),
        links={f"{_OWN}/{path.name}": path for path in sorted(_linked(request))},
        stdin=request.prompt or "",
    )


def _without_servers(request: LaunchRequest) -> dict[str, Any]:
    """Those of the whole machine, which would otherwise be started beside ours."""
    others = [name for file in _MACHINE for name in CodexConfig(request.home.texts.get(file, "")).servers]
    return {"mcp_servers": {name: {"enabled": False} for name in others}} if others else {}


def _linked(request: LaunchRequest) -> Iterator[Path]:
    """Codex writes through these links: a login that it renews is not lost. A trial needs none, and gets none."""
    own = _own_folder(request.home.folder, request.home.environ)
    names = () if request.model_url else _LOGIN if request.prompt is not None else (*_LOGIN, _SESSIONS)
    return (own / name for name in names if own / name in request.home.present)


def _instructions(request: LaunchRequest) -> str:
    """What Codex finds in its own folder: the user's instructions, and then the project's. In a project it would itself
    read any file that a link of this name leads to."""
    texts = request.home.texts
    users = "" if request.model_url else texts.get(_OVERRIDE, "").strip() or texts.get(_AGENTS, "").strip()
    return "\n\n".join(filter(None, [users, request.instructions]))


def _features_off(request: LaunchRequest) -> tuple[str, ...]:
    """`--disable` counts more than all else on a command line, but a version that lacks the feature refuses it."""
    if request.version in Codex.verified:
        return tuple(word for feature in _OFF for word in ("--disable", feature))
    return _options({f"features.{feature}": False for feature in _OFF})


def _need_settings(request: LaunchRequest, settings: CodexConfig) -> None:
    """Without those of the user, it would send everything to OpenAI instead of the user's own server."""
    file = _own_folder(request.home.folder, request.home.environ) / _SETTINGS
    unread = file in request.home.present and "config" not in request.home.texts
    if fault := "it is not a text that we may read" if unread else settings.fault:
        raise GatewayError(
            Problem(
                code=AGENT_FAILED,
                message=f"`{file}` cannot be read, so the model that Codex is to use is not known: {fault}",
                where=str(file),
                hint="mend that file; `codex` itself says more about it",
            )
        )


def _no_catalog() -> Problem:
    return Problem(
        code=AGENT_FAILED,
        message="`codex debug models --bundled` does not say which models there are, whose tools are to be taken away",
        where="codex",
        hint="run that command to see what is wrong with the installation, or with `config.toml`",
    )


# Ours beside its own --------------------------------------------------------------------------------------------------


def _beside(request: LaunchRequest, settings: CodexConfig) -> LaunchPlan:
    """It runs in the user's own folder. Without a person at it, what it would write there goes to the run's folder, or
    is not written at all."""
    options = _server(request)
    if not settings.limits_results:
        options["tool_output_token_limit"] = _RESULT_TOKENS
    env: dict[str, str] = {}
    if request.prompt is not None:
        options["log_dir"] = str(request.run / "log")
        options |= {} if settings.has_sandbox else {"sandbox_mode": "workspace-write"}
        env["CODEX_SQLITE_HOME"] = str(request.run / "state")
    if request.prompt is not None or request.args[:1] in _UNATTENDED:
        options |= _untrusted(settings.undecided(request.project))
    return LaunchPlan(
        argv=_argv(
            request,
            ("--ephemeral", "--skip-git-repo-check"),
            (*_options(options), *_wishes(request, _told(settings, "", request))),
        ),
        env=env,
        unset=("CODEX_EXEC_SERVER_URL",),
        folders=("log", "state") if env else (),
        stdin=request.prompt or "",
    )


# Options of both ------------------------------------------------------------------------------------------------------


def _own_folder(home: Path, environ: Mapping[str, str]) -> Path:
    given = environ.get("CODEX_HOME")
    return Path(given) if given else home / ".codex"


def _argv(request: LaunchRequest, headless: tuple[str, ...], options: tuple[str, ...]) -> tuple[str, ...]:
    """What the user gave comes first, a subcommand with its own options too, so that ours counts where both say
    something. After `--` nothing is an option any more."""
    if request.prompt is not None:
        return (request.program, "exec", "--json", *headless, *request.args, *options, "-")
    place = request.args.index("--") if "--" in request.args else len(request.args)
    return (request.program, *request.args[:place], *options, *request.args[place:])


def _options(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(word for key, value in values.items() for word in ("-c", f"{key}={toml_value(value)}"))


def _server(request: LaunchRequest) -> dict[str, Any]:
    """Without it there is no run. Its tools are neither asked about, nor hidden behind a search or a program."""
    assert request.server is not None
    entry = {
        "command": request.server.command,
        "args": list(request.server.args),
        "required": True,
        "default_tools_approval_mode": "approve",
        "omit_tools_from": ["deferred", "code_mode"],
        "startup_timeout_sec": _START_S,
        "tool_timeout_sec": int(request.server.call_s) + 10,
    }
    return {f"mcp_servers.{SERVER}": entry}


def _untrusted(folders: Iterable[Path]) -> dict[str, Any]:
    """What these bring for Codex does not count, and nobody is asked whether it may. Where nothing is said, Codex that
    may write files trusts them, and writes so into the user's settings; one that may only read does neither."""
    return {"projects": {str(folder): {"trust_level": "untrusted"} for folder in folders}}


def _told(settings: CodexConfig, about: str, request: LaunchRequest) -> str:
    """The user's own instructions stay; nothing is said where we have nothing to add."""
    added = [text for text in (about, request.mitigation) if text]
    return "\n\n".join(filter(None, [settings.developer_instructions, *added])) if added else ""


def _wishes(request: LaunchRequest, instructions: str) -> tuple[str, ...]:
    values: dict[str, Any] = {}
    if request.model:
        values["model"] = request.model
    if instructions:
        values["developer_instructions"] = instructions
    if request.model_url:
        values |= _trial_model(request.model_url)
    return _options(values)


def _trial_model(url: str) -> dict[str, Any]:
    provider = {"name": _TRIAL, "base_url": f"{url}/v1", "request_max_retries": 0, "stream_max_retries": 0}
    return {"model_provider": _TRIAL, f"model_providers.{_TRIAL}": provider}


# The models that Codex knows, changed so that none of them asks for a tool of Codex's own.

_WITHOUT_TOOLS: Final[dict[str, Any]] = {
    "apply_patch_tool_type": None,
    "experimental_supported_tools": [],
    "multi_agent_version": None,
    "shell_type": "disabled",
    "supports_search_tool": False,
    "tool_mode": "direct",
}
"""What of a model's entry brings tools. Most models would otherwise write programs that call them, and not be told of
them one by one."""


def strict_catalog(printed: str) -> str:
    """The catalog that Codex printed, without tools; empty where it is none."""
    catalog = object_of(printed)
    models = [{**mapping(model), **_WITHOUT_TOOLS} for model in listed(catalog.get("models"))]
    return msgspec.json.encode({**catalog, "models": models}).decode() if models else ""


# What of the settings of Codex that are there already counts in a run of ours.

_MODEL_SETTINGS: Final = (
    *("chatgpt_base_url", "cli_auth_credentials_store", "disable_response_storage", "forced_chatgpt_workspace_id"),
    *("forced_login_method", "hide_agent_reasoning", "model", "model_auto_compact_token_limit", "model_context_window"),
    *("model_max_output_tokens", "model_provider", "model_providers", "model_reasoning_effort"),
    *("model_reasoning_summary", "model_supports_reasoning_summaries", "model_verbosity", "openai_base_url"),
    *("oss_provider", "personality", "preferred_auth_method", "service_tier", "show_raw_agent_reasoning"),
)
"""Those by which it comes to its model and talks to it. The others may bring servers, hooks, plugins and programs."""
_SANDBOX_SETTINGS: Final = ("default_permissions", "permissions", "sandbox_mode", "sandbox_workspace_write")


class CodexConfig:
    """A `config.toml`: the user's, or that of the whole machine. One that is no TOML counts as empty here, and `fault`
    says what is wrong with it; a Codex that reads the file complains by itself."""

    def __init__(self, written: str) -> None:
        self._values: Mapping[str, Any] = {}
        self.fault = ""
        try:
            self._values = tomllib.loads(written)
        except (tomllib.TOMLDecodeError, RecursionError) as error:
            self.fault = str(error)

    @property
    def developer_instructions(self) -> str:
        return text(self._values.get("developer_instructions"))

    @property
    def limits_results(self) -> bool:
        return "tool_output_token_limit" in self._values

    @property
    def has_sandbox(self) -> bool:
        return any(name in self._values for name in _SANDBOX_SETTINGS)

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(mapping(self._values.get("mcp_servers")))

    def for_model(self) -> str:
        """A file of only what concerns the model."""
        return toml_document({name: self._values[name] for name in _MODEL_SETTINGS if name in self._values})

    def undecided(self, project: Path) -> Iterator[Path]:
        """The folder and those above it, as far as the user has not said whether they are trusted."""
        decided = mapping(self._values.get("projects"))
        return (folder for folder in (project, *project.parents) if str(folder) not in decided)


# Values as TOML, on one line each: for a file of settings, and for options that hold one.

_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_document(values: Mapping[str, Any]) -> str:
    """A whole file of these keys."""
    return "".join(f"{_key(key)} = {toml_value(value)}\n" for key, value in values.items())


def toml_value(value: object) -> str:
    """One value that `tomllib` may have read; it would read the same again."""
    match value:
        case bool():
            return "true" if value else "false"
        case str():
            return _quoted(value)
        case int() | float():
            return repr(value)
        case datetime() | date() | time():
            return value.isoformat()
        case dict():
            members = cast("dict[str, object]", value).items()
            return "{" + ", ".join(f"{_key(key)} = {toml_value(member)}" for key, member in members) + "}"
        case list() | tuple():
            return f"[{', '.join(map(toml_value, cast('list[object]', value)))}]"
        case _:
            raise TypeError(f"TOML has no {type(value).__name__}")


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else _quoted(key)


def _quoted(text: str) -> str:
    """As in JSON, but for the one control character that JSON lets through."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


# What `codex exec --json` prints: one event per line, for what was begun and what is done.

_NO_TOOL: Final = ("agent_message", "error", "reasoning", "user_message")
"""Items that no tool has part in. An `error` among them is a warning, after which the run goes on."""
RESOURCE_TOOLS: Final = ("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource")
"""Tools of Codex's own that can do nothing but ask its servers. They cannot be taken away."""

_AGAIN: Final = re.compile(r"Reconnecting\.\.\. (\d{1,6})/(\d{1,6})(?: \((.*)\))?", re.DOTALL)


class CodexOutputParser:
    """Calls that were refused are not among the events; what is begun has not been refused. What the model said since
    its last call is its answer."""

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._last_words = ""

    def line(self, line: str, /) -> Iterator[AgentEvent]:
        event = object_of(line)
        match event.get("type"):
            case "item.started" | "item.updated" | "item.completed" as kind:
                yield from self._item(mapping(event.get("item")), done=kind == "item.completed")
            case "turn.completed":
                usage = mapping(event.get("usage"))
                yield TokenUsage(count(usage.get("input_tokens")), count(usage.get("output_tokens")))
                yield FinalAnswer(self._last_words)
            case "error" if again := _AGAIN.match(text(event.get("message"))):
                yield ModelRetry(int(again[1]), int(again[2]), again[3] or "no answer")
            case "turn.failed":
                yield AgentError(text(mapping(event.get("error")).get("message")) or "its turn failed")
            case _:
                return

    def _item(self, item: Mapping[str, Any], *, done: bool) -> Iterator[AgentEvent]:
        kind = text(item.get("type"))
        if kind == "agent_message" and done:
            self._last_words = text(item.get("text"))
            yield AgentText(self._last_words)
        elif kind not in _NO_TOOL and (number := text(item.get("id"))) not in self._begun:
            self._begun.add(number)
            self._last_words = ""
            yield from self._used(kind, item)

    def _used(self, kind: str, item: Mapping[str, Any]) -> Iterator[AgentEvent]:
        """A tool of its own, which is told of once, as soon as it is begun."""
        if not _is_ours(item):
            server, tool = text(item.get("server")), text(item.get("tool"))
            yield NativeToolUsed(f"{server}/{tool}" if server else tool or kind, ran=item.get("status") != "declined")


def _is_ours(item: Mapping[str, Any]) -> bool:
    """A call that asks all servers at once has `codex` for its server."""
    called = item.get("server") == SERVER or item.get("tool") in RESOURCE_TOOLS
    return item.get("type") == "mcp_tool_call" and called


__all__ = ["PROVIDER"]
