"""Gemini CLI: started so that its tools are ours, or ours beside its own. docs/agents/gemini.md gives the reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trunkline.agents.events import AgentError, AgentEvent, AgentText, FinalAnswer, NativeToolUsed, TokenUsage
from trunkline.agents.lenient_json import count, mapping, object_of, text
from trunkline.agents.providers import isolation
from trunkline.agents.providers.arguments import split_arguments
from trunkline.agents.providers.provider import SERVER, LaunchPlan, LaunchRequest, Provider, UserSetupQuery
from trunkline.config.dialects.references import parse_env_file

_RESULT_CHARACTERS: Final = 50_000

_OWN: Final = ".gemini"
_SETTINGS: Final = "settings.json"
_MEMORY: Final = "GEMINI.md"
_IMPORT: Final = re.compile(r"(?<!\S)@")
_POLICY: Final = "policy.toml"
_HOME: Final = "home"
_TMP: Final = "tmp"
_LOGIN: Final = ("gemini-credentials.json", "google_accounts.json", "installation_id", "oauth_creds.json")
"""The files of a login. Gemini renews it in user_home, so also through a link."""
_BESIDE: Final = (".agents", ".env")
_OUTER_SESSION: Final = (
    *("GEMINI_CLI_ACTIVITY_LOG_TARGET", "GEMINI_CLI_IDE_AUTH_TOKEN", "GEMINI_CLI_IDE_PID"),
    *("GEMINI_CLI_IDE_SERVER_PORT", "GEMINI_CLI_IDE_SERVER_STDIO_ARGS", "GEMINI_CLI_IDE_SERVER_STDIO_COMMAND"),
    *("GEMINI_CLI_IDE_WORKSPACE_PATH", "GEMINI_CLI_TRUSTED_FOLDERS_PATH", "GEMINI_RESTRICTED_MODE"),
    *("GEMINI_SYSTEM_MD", "GEMINI_WRITE_SYSTEM_MD"),
)
"""Variables that would connect it with an editor, or have it use other folders than this run's."""
_OTHER_MODELS: Final = (
    "GOOGLE_API_KEY",
    "GOOGLE_GENAI_USE_GCA",
    "GOOGLE_GENAI_USE_VERTEXAI",
    *isolation.PROXY_VARIABLES,
)
_PROBE_MODEL: Final = "gemini-2.5-pro"
"""Not the default, `auto`, which first asks another model which model to use."""
_RULES: Final = f"""\
[[rule]]
mcpName = "{SERVER}"
toolName = "*"
decision = "allow"
priority = 999

[[rule]]
toolName = "*"
decision = "deny"
priority = 998
"""


class Gemini(Provider):
    """The provider of Gemini CLI."""

    name = "gemini"
    program = "gemini"
    install = "npm install -g @google/gemini-cli"
    verified = frozenset({"0.61.0"})
    instructions = (_MEMORY, "AGENTS.md")
    result_chars = _RESULT_CHARACTERS
    prefix = f"mcp_{SERVER}_"

    def user_setup_query(self, home: Path, environ: Mapping[str, str], /) -> UserSetupQuery:
        user_home = _home(home, environ)
        own = user_home / _OWN
        return UserSetupQuery(
            texts={"settings": own / _SETTINGS, "variables": own / ".env", "home_variables": user_home / ".env"},
            links=tuple(own / name for name in (*_LOGIN, _SETTINGS)) + tuple(user_home / name for name in _BESIDE),
            folders=(own,),
        )

    def plan(self, request: LaunchRequest, /) -> LaunchPlan:
        if request.mode == "native":
            return LaunchPlan(
                argv=_argv(request, ()), env=_environment(request), folders=(_TMP,), stdin=request.prompt or ""
            )
        return _isolated(request) if request.mode == "intercept" else _additive(request)

    def parser(self) -> GeminiOutputParser:
        return GeminiOutputParser(self.is_ours)


PROVIDER: Final = Gemini()


def _isolated(request: LaunchRequest) -> LaunchPlan:
    """The plan for our tools alone. It is started in a folder of the run: the `.env` and settings of a trusted project
    would count, and in one that is not trusted it starts no server. Links lead to the user's login."""
    home = request.home
    own = _home(home.folder, home.environ) / _OWN
    policy = str(request.run / _POLICY)
    options = ("--allowed-mcp-server-names", SERVER, "-e", "none", "--admin-policy", policy, "--policy", policy)
    variables = home.texts.get("variables", home.texts.get("home_variables", ""))
    login = [name for name in _LOGIN if own / name in home.present]
    return LaunchPlan(
        argv=_argv(request, options),
        env=_environment(request) | {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_SANDBOX": "false"},
        unset=_OUTER_SESSION + isolation.GIT_VARIABLES + (_OTHER_MODELS if request.model_url else ()),
        files={
            **isolation.WORK_FOLDER_FILES,
            _POLICY: _RULES,
            f"{isolation.WORK_FOLDER}/{_OWN}/.env": "" if request.model_url else variables,
            # `@path` is escaped: Gemini would insert that file of its folder, where the user's variables are
            f"{isolation.WORK_FOLDER}/{_MEMORY}": _IMPORT.sub(r"\\@", isolation.project_notice(request)),
            f"{_HOME}/{_OWN}/{_SETTINGS}": isolated_settings(request, own / _SETTINGS),
        },
        folders=(isolation.WORK_FOLDER, *isolation.WORK_SUBFOLDERS, _TMP),
        links={} if request.model_url else {f"{_HOME}/{_OWN}/{name}": own / name for name in login},
        cwd=isolation.WORK_FOLDER,
        stdin=request.prompt_text(),
    )


def _additive(request: LaunchRequest) -> LaunchPlan:
    """The plan for our tools beside its own: links to the user's files, and a copy of the settings with our server."""
    user_home = _home(request.home.folder, request.home.environ)
    own = user_home / _OWN
    names = [name for name in request.home.entries.get(own, ()) if name != _SETTINGS]
    links = {f"{_HOME}/{_OWN}/{name}": own / name for name in names}
    links |= {f"{_HOME}/{name}": user_home / name for name in _BESIDE if user_home / name in request.home.present}
    return LaunchPlan(
        argv=_argv(request, () if request.prompt is None else ("--skip-trust",)),
        env=_environment(request),
        files={f"{_HOME}/{_OWN}/{_SETTINGS}": additive_settings(request, own / _SETTINGS)},
        folders=(_TMP,),
        links=links,
        stdin=request.prompt or "",
    )


def _home(home: Path, environ: Mapping[str, str]) -> Path:
    """The folder that Gemini uses as the user's home."""
    return Path(environ.get("GEMINI_CLI_HOME") or home)


def _argv(request: LaunchRequest, options: tuple[str, ...]) -> tuple[str, ...]:
    """The command line. The user's arguments come first: some of our options take all words that follow."""
    given, rest = split_arguments(request.args)
    headless = () if request.prompt is None else ("-o", "stream-json")
    model = request.model or (_PROBE_MODEL if request.model_url else "")
    return (request.program, *given, *options, *headless, *((f"--model={model}",) if model else ()), *rest)


def _environment(request: LaunchRequest) -> dict[str, str]:
    """Avoids a second process, which would keep signals to itself, and sets the folder for temporary files, where it
    puts the whole conversation when something goes wrong."""
    env = {"GEMINI_CLI_NO_RELAUNCH": "true", "TMPDIR": str(request.run / _TMP)}
    if request.mode != "native":
        env["GEMINI_CLI_HOME"] = str(request.run / _HOME)
    if request.model_url:
        env |= {"GOOGLE_GEMINI_BASE_URL": request.model_url, "GEMINI_API_KEY": "trial"}
    return env


_WRAPPING: Final = 1000
"""What Gemini puts around a result counts as well."""
_THRESHOLD: Final = _RESULT_CHARACTERS + _WRAPPING
_KEPT: Final = (
    *(("security", "auth"), ("model", "name"), ("modelConfigs",), ("billing",), ("privacy",), ("ui", "theme")),
    *(("advanced", "dnsResolutionOrder"), ("general", "maxAttempts"), ("general", "retryFetchErrors")),
)
"""The settings by which it reaches its model. All others may bring tools, servers, hooks and programs."""
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
_PROBE: Final = {
    "privacy": {"usageStatisticsEnabled": False},
    "security": {"auth": {"selectedType": "gemini-api-key"}},
}


def isolated_settings(request: LaunchRequest, file: Path) -> str:
    """The settings for our tools alone. `file` is the user's, which a probe does not use."""
    if request.model_url:
        known = _PROBE
    else:
        known = isolation.merged(_login(request), isolation.picked(_own(request, file), _KEPT))
    return isolation.json_text(isolation.merged(known, _QUIET, _ISOLATED, _mcp_servers(request)))


def additive_settings(request: LaunchRequest, file: Path) -> str:
    """The user's settings in `file` with our server, which none of their lists may leave out."""
    settings = isolation.merged(_login(request), _own(request, file), _QUIET, _mcp_servers(request))
    _with_ours(settings, "mcp", "allowed", SERVER)
    _with_ours(settings, "tools", "core", f"mcp_{SERVER}_*")
    threshold = mapping(settings.get("tools")).get("truncateToolOutputThreshold")
    if not isinstance(threshold, int) or threshold < _THRESHOLD:
        settings = isolation.merged(settings, {"tools": {"truncateToolOutputThreshold": _THRESHOLD}})
    return isolation.json_text(settings)


def _own(request: LaunchRequest, file: Path) -> dict[str, Any]:
    return isolation.read_config(isolation.user_text(request.home, "settings", file), str(file))


def _login(request: LaunchRequest) -> dict[str, Any]:
    """Selects the API key if the user chose nothing else: with a model address set, Gemini does not."""
    texts = request.home.texts
    written = parse_env_file(texts.get("variables", texts.get("home_variables", "")))
    variables = written | dict(request.home.environ)
    if not variables.get("GEMINI_API_KEY") or "true" in (variables.get(name) for name in _OTHER_LOGINS):
        return {}
    return {"security": {"auth": {"selectedType": "gemini-api-key"}}}


def _with_ours(settings: dict[str, Any], section: str, key: str, name: str) -> None:
    names = mapping(settings.get(section)).get(key)
    if isinstance(names, list):
        settings[section] = {**settings[section], key: [*names, name]}


def _mcp_servers(request: LaunchRequest) -> dict[str, Any]:
    server = request.tool_server
    entry = {"command": server.command, "args": list(server.args), "timeout": server.call_ms, "trust": True}
    return {"mcpServers": {SERVER: entry}}


_REFUSALS: Final = ("tool_not_registered", "policy_violation", "invalid_tool_params")
"""Errors of a call that was not carried out. Any other counts as carried out."""


class GeminiOutputParser:
    """Parses `stream-json`: one event per line. What the model said since its last call is its answer."""

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        self._is_ours = is_ours
        self._own_calls: dict[str, str] = {}
        self._words: list[str] = []

    def line(self, line: str, /) -> Iterator[AgentEvent]:
        event = object_of(line)
        match event.get("type"):
            case "message" if event.get("role") == "assistant" and (words := text(event.get("content"))):
                self._words.append(words)
                yield AgentText(words)
            case "tool_use":
                self._words.clear()
                if not self._is_ours(name := text(event.get("tool_name"))):
                    self._own_calls[text(event.get("tool_id"))] = name
            case "tool_result" if (own := self._own_calls.pop(text(event.get("tool_id")), None)) is not None:
                failed = event.get("status") == "error"
                refused = failed and text(mapping(event.get("error")).get("type")) in _REFUSALS
                yield NativeToolUsed(own, ran=not refused)
            case "error" if event.get("severity") == "error":
                yield AgentError(text(event.get("message")))
            case "result":
                yield from self._result(event)
            case _:
                return

    def _result(self, event: Mapping[str, Any]) -> Iterator[AgentEvent]:
        stats = mapping(event.get("stats"))
        yield TokenUsage(count(stats.get("input_tokens")), count(stats.get("output_tokens")))
        if event.get("status") == "success":
            yield FinalAnswer("".join(self._words))
        else:
            yield AgentError(text(mapping(event.get("error")).get("message")) or "it ended with an error")
