"""Codex: started so that its tools are ours, or ours beside its own. docs/agents/codex.md gives the reasons."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from datetime import date, datetime, time
from pathlib import Path
from typing import Any, Final, cast

import msgspec

from trunkline.agents import events
from trunkline.agents.lenient_json import count, listed, mapping, object_of, text
from trunkline.agents.providers.arguments import split_arguments
from trunkline.agents.providers.isolation import safe_environment
from trunkline.agents.providers.provider import SERVER, LaunchPlan, LaunchRequest, Provider, UserSetupQuery
from trunkline.core.errors import AGENT_FAILED, GatewayError, Problem

_FOLDER: Final = "codex"
_CATALOG: Final = "catalog.json"
_MACHINE: Final = {
    "machine": Path("/etc/codex/config.toml"),
    "managed": Path("/etc/codex/managed_config.toml"),
}
"""Settings of the whole machine, which Codex always reads."""
_LOGIN: Final = ("auth.json", "auth.lock")
_OVERRIDE: Final = "AGENTS.override.md"
_AGENTS: Final = "AGENTS.md"
"""Instructions, in the user's folder for every agent, in a project for that. The override wins."""
_SESSIONS: Final = "sessions"
_SETTINGS: Final = "config.toml"
_UNATTENDED: Final = (("exec",), ("e",))
"""Subcommands that do not ask whether a repository is trusted."""
_START_S: Final = 60
_RESULT_CHARS: Final = 40_000
_RESULT_TOKENS: Final = _RESULT_CHARS
"""Codex counts four bytes as a token, and no character has more."""
_ELSEWHERE: Final = ("CODEX_EXEC_SERVER_URL", "CODEX_SQLITE_HOME")
"""Variables that would make it start our server, or keep its state, elsewhere."""
_OFF: Final = (
    *("apps", "code_mode_host", "daemon_auto_start", "goals", "hooks", "image_generation", "multi_agent", "plugins"),
    *("remote_plugin", "shell_snapshot", "shell_tool", "skill_search", "sleep_tool", "tool_suggest", "unified_exec"),
    *("view_image",),
)
"""Features that bring tools, start programs, or load foreign content."""
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
_PROBE: Final = "trunkline-trial"


class Codex(Provider):
    """The provider of Codex."""

    name = "codex"
    program = "codex"
    install = "npm install -g @openai/codex"
    verified = frozenset({"0.166.0"})
    instructions = (_OVERRIDE, _AGENTS)
    result_chars = _RESULT_CHARS
    prefix = f"mcp__{SERVER.replace('-', '_')}/"

    def is_ours(self, tool: str, /) -> bool:
        return super().is_ours(tool) or tool.removeprefix("functions/") in RESOURCE_TOOLS

    def user_setup_query(self, home: Path, environ: Mapping[str, str], /) -> UserSetupQuery:
        own = _own_folder(home, environ)
        return UserSetupQuery(
            texts={"config": own / _SETTINGS, **{name: own / name for name in (_OVERRIDE, _AGENTS)}, **_MACHINE},
            command_outputs={"models": ("debug", "models", "--bundled")},
            links=tuple(own / name for name in (*_LOGIN, _SESSIONS, _SETTINGS)),
        )

    def plan(self, request: LaunchRequest, /) -> LaunchPlan:
        if request.mode == "native":
            argv = _argv(request, ("--skip-git-repo-check",), _user_options(request, ""))
            return LaunchPlan(argv=argv, stdin=request.prompt or "")
        settings = CodexConfig(request.home.texts.get("config", ""))
        return _isolated(request, settings) if request.mode == "intercept" else _additive(request, settings)

    def parser(self) -> CodexOutputParser:
        return CodexOutputParser()


PROVIDER: Final = Codex()


# Only our tools -------------------------------------------------------------------------------------------------------


def _isolated(request: LaunchRequest, settings: CodexConfig) -> LaunchPlan:
    """The plan for our tools alone: a folder of this run with the user's login, and only the settings for the model. It
    is not started below its folder for temporary files, where it would not work fully."""
    _need_settings(request, settings)
    is_verified, is_probe, texts = request.version in Codex.verified, bool(request.model_url), request.home.texts
    files = {f"{_FOLDER}/{_SETTINGS}": settings.for_model()}
    options: dict[str, Any] = {}
    if others := [name for file in _MACHINE for name in CodexConfig(texts.get(file, "")).servers]:
        # the servers of the whole machine would be started beside ours
        options["mcp_servers"] = {name: {"enabled": False} for name in others}
    options |= {**_server(request), **_ISOLATED}
    if catalog := catalog_without_tools(request.home.command_outputs.get("models", "")):
        files[_CATALOG] = catalog
        options["model_catalog_json"] = str(request.run / _CATALOG)
    elif is_verified:
        raise GatewayError(
            Problem(
                code=AGENT_FAILED,
                message="`codex debug models --bundled` lists no models, so their tools cannot be removed",
                where="codex",
                hint="run that command to see what is wrong with the installation or with `config.toml`",
            )
        )
    if request.prompt is None or not is_verified:
        options |= _untrusted((request.project, *request.project.parents))
    # Codex itself would read any file that a link of this name leads to
    users = "" if is_probe else texts.get(_OVERRIDE, "").strip() or texts.get(_AGENTS, "").strip()
    if instructions := "\n\n".join(filter(None, [users, request.instructions])):
        files[f"{_FOLDER}/{_AGENTS}"] = instructions
    # through links Codex writes a renewed login; a probe needs none
    codex_home, own = _own_folder(request.home.folder, request.home.environ), request.run / _FOLDER
    names = () if is_probe else _LOGIN if request.prompt is not None else (*_LOGIN, _SESSIONS)
    # `--disable` wins, but a version without the feature refuses it
    off = tuple(word for feature in _OFF for word in ("--disable", feature))
    features_off = off if is_verified else _options({f"features.{feature}": False for feature in _OFF})
    ours = _user_options(request, _developer_instructions(settings, _ABOUT_TOOLS, request))
    return LaunchPlan(
        argv=_argv(
            request,
            ("--ephemeral", "--ignore-rules", "--skip-git-repo-check"),
            (*_options(options), *features_off, *ours),
        ),
        env={"CODEX_HOME": str(own), "TMPDIR": str(request.run / "tmp")} | safe_environment(request.home.environ),
        unset=_ELSEWHERE,
        files=files,
        folders=("tmp",),
        links={f"{_FOLDER}/{name}": codex_home / name for name in names if codex_home / name in request.home.present},
        stdin=request.prompt or "",
    )


def _need_settings(request: LaunchRequest, settings: CodexConfig) -> None:
    """Raise GatewayError without the user's settings: Codex would use OpenAI instead of the user's own server."""
    file = _own_folder(request.home.folder, request.home.environ) / _SETTINGS
    unread = file in request.home.present and "config" not in request.home.texts
    if fault := "it is not readable text" if unread else settings.fault:
        raise GatewayError(
            Problem(
                code=AGENT_FAILED,
                message=f"`{file}` cannot be read, so the model for Codex is not known: {fault}",
                where=str(file),
                hint="fix that file; `codex` itself says more about it",
            )
        )


# Ours beside its own --------------------------------------------------------------------------------------------------


def _additive(request: LaunchRequest, settings: CodexConfig) -> LaunchPlan:
    """The plan for our tools beside its own, in the user's folder. Headless, it writes to the run's folder or
    nowhere."""
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
            (*_options(options), *_user_options(request, _developer_instructions(settings, "", request))),
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
    """The command line. The user's arguments come first, so that ours win; after `--` there are no options."""
    if request.prompt is not None:
        return (request.program, "exec", "--json", *headless, *request.args, *options, "-")
    given, rest = split_arguments(request.args)
    return (request.program, *given, *options, *rest)


def _options(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(word for key, value in values.items() for word in ("-c", f"{key}={toml_value(value)}"))


def _server(request: LaunchRequest) -> dict[str, Any]:
    """Our server: required, its tools approved, and not hidden behind a search or a program."""
    entry = {
        "command": request.tool_server.command,
        "args": list(request.tool_server.args),
        "required": True,
        "default_tools_approval_mode": "approve",
        "omit_tools_from": ["deferred", "code_mode"],
        "startup_timeout_sec": _START_S,
        "tool_timeout_sec": int(request.tool_server.call_s) + 10,
    }
    return {f"mcp_servers.{SERVER}": entry}


def _untrusted(folders: Iterable[Path]) -> dict[str, Any]:
    """Marks folders as untrusted, so that their Codex configuration does not count and nobody is asked. Otherwise, a
    Codex that may write files trusts them and writes that to the user's settings."""
    return {"projects": {str(folder): {"trust_level": "untrusted"} for folder in folders}}


def _developer_instructions(settings: CodexConfig, about: str, request: LaunchRequest) -> str:
    """The user's own instructions with ours; empty if there is nothing to add."""
    added = [text for text in (about, request.mitigation) if text]
    return "\n\n".join(filter(None, [settings.developer_instructions, *added])) if added else ""


def _user_options(request: LaunchRequest, instructions: str) -> tuple[str, ...]:
    values: dict[str, Any] = {}
    if request.model:
        values["model"] = request.model
    if instructions:
        values["developer_instructions"] = instructions
    if request.model_url:
        url = f"{request.model_url}/v1"
        provider = {"name": _PROBE, "base_url": url, "request_max_retries": 0, "stream_max_retries": 0}
        values |= {"model_provider": _PROBE, f"model_providers.{_PROBE}": provider}
    return _options(values)


_WITHOUT_TOOLS: Final[dict[str, Any]] = {
    "apply_patch_tool_type": None,
    "experimental_supported_tools": [],
    "multi_agent_version": None,
    "shell_type": "disabled",
    "supports_search_tool": False,
    "tool_mode": "direct",
}
"""The members of a model's entry that bring tools. Most models would otherwise call ours by programs they write."""


def catalog_without_tools(printed: str) -> str:
    """The catalog of models that Codex printed, without its own tools; empty if it is none."""
    catalog = object_of(printed)
    models = [{**mapping(model), **_WITHOUT_TOOLS} for model in listed(catalog.get("models"))]
    return msgspec.json.encode({**catalog, "models": models}).decode() if models else ""


_MODEL_SETTINGS: Final = (
    *("chatgpt_base_url", "cli_auth_credentials_store", "disable_response_storage", "forced_chatgpt_workspace_id"),
    *("forced_login_method", "hide_agent_reasoning", "model", "model_auto_compact_token_limit", "model_context_window"),
    *("model_max_output_tokens", "model_provider", "model_providers", "model_reasoning_effort"),
    *("model_reasoning_summary", "model_supports_reasoning_summaries", "model_verbosity", "openai_base_url"),
    *("oss_provider", "personality", "preferred_auth_method", "service_tier", "show_raw_agent_reasoning"),
)
"""The settings for reaching the model. The others may bring servers, hooks, plugins and programs."""
_SANDBOX_SETTINGS: Final = ("default_permissions", "permissions", "sandbox_mode", "sandbox_workspace_write")


class CodexConfig:
    """A `config.toml`: the user's, or that of the whole machine. Invalid TOML counts as empty; `fault` says why."""

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
        """A file with only the settings for the model."""
        return toml_document({name: self._values[name] for name in _MODEL_SETTINGS if name in self._values})

    def undecided(self, project: Path) -> Iterator[Path]:
        """The project's folder and those above it for which the user has not decided on trust."""
        decided = mapping(self._values.get("projects"))
        return (folder for folder in (project, *project.parents) if str(folder) not in decided)


_BARE: Final = re.compile(r"[A-Za-z0-9_-]+")


def toml_document(values: Mapping[str, Any]) -> str:
    """A TOML file of these keys."""
    return "".join(f"{_key(key)} = {toml_value(value)}\n" for key, value in values.items())


def toml_value(value: object) -> str:
    """A value from `tomllib` as TOML on one line, which reads as the same value."""
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
    """Quoted as in JSON, except the one control character that JSON allows."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


_NO_TOOL: Final = ("agent_message", "error", "reasoning", "user_message")
"""Items without a tool. An `error` among them is a warning, after which the run continues."""
RESOURCE_TOOLS: Final = ("list_mcp_resources", "list_mcp_resource_templates", "read_mcp_resource")
"""Codex's own tools that can only query its servers. They cannot be removed."""

_AGAIN: Final = re.compile(r"Reconnecting\.\.\. (\d{1,6})/(\d{1,6})(?: \((.*)\))?", re.DOTALL)


class CodexOutputParser:
    """Parses `codex exec --json`: one event per line, when an item starts and when it is done.

    Refused calls produce no events. What the model said since its last call is its answer. A tool of its own is
    reported once, as soon as it starts.
    """

    def __init__(self) -> None:
        self._begun: set[str] = set()
        self._text = ""

    def line(self, line: str, /) -> Iterator[events.AgentEvent]:
        event = object_of(line)
        match event.get("type"):
            case "item.started" | "item.updated" | "item.completed" as kind:
                yield from self._item(mapping(event.get("item")), done=kind == "item.completed")
            case "turn.completed":
                usage = mapping(event.get("usage"))
                yield events.TokenUsage(count(usage.get("input_tokens")), count(usage.get("output_tokens")))
                yield events.FinalAnswer(self._text)
            case "error" if again := _AGAIN.match(text(event.get("message"))):
                yield events.ModelRetry(int(again[1]), int(again[2]), again[3] or "no answer")
            case "turn.failed":
                yield events.AgentError(text(mapping(event.get("error")).get("message")) or "its turn failed")
            case _:
                return

    def _item(self, item: Mapping[str, Any], *, done: bool) -> Iterator[events.AgentEvent]:
        kind = text(item.get("type"))
        if kind == "agent_message" and done:
            self._text = text(item.get("text"))
            yield events.AgentText(self._text)
        elif kind not in _NO_TOOL and (number := text(item.get("id"))) not in self._begun:
            self._begun.add(number)
            self._text = ""
            server, tool = text(item.get("server")), text(item.get("tool"))
            # a query of all servers at once has `codex` as its server
            if kind != "mcp_tool_call" or not (server == SERVER or tool in RESOURCE_TOOLS):
                name = f"{server}/{tool}" if server else tool or kind
                yield events.NativeToolUsed(name, ran=item.get("status") != "declined")
