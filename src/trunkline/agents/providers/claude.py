"""Claude Code: started so that its tools are ours, or ours beside its own. docs/agents/claude.md gives the reasons."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trunkline.agents import events
from trunkline.agents.lenient_json import count, entries, listed, mapping, object_of, text
from trunkline.agents.providers.arguments import is_headless, split_arguments
from trunkline.agents.providers.isolation import json_text, safe_environment
from trunkline.agents.providers.provider import SERVER, LaunchPlan, LaunchRequest, Provider, UserSetup, UserSetupQuery
from trunkline.core.errors import AGENT_FAILED, GatewayError, Problem

_MCP_FILE: Final = "mcp.json"
_SETTINGS_FILE: Final = "settings.json"
_PROMPT_FILE: Final = "system_prompt.md"
_ADDED: Final = "--append-system-prompt"
_ADDED_FILE: Final = "--append-system-prompt-file"
_CONFIG: Final = "claude"
_TEMPORARY: Final = "tmp"
_CONNECT_MS: Final = "60000"
_STATE: Final = ".claude.json"
_OLD_STATE: Final = ".config.json"
_USER_CONFIG: Final = (
    *("CLAUDE.md", "agents", "commands", "hooks", "keybindings.json", "output-styles", "rules", "skills"),
    *("themes", "workflows"),
)
"""What in the user's folder of Claude Code is personal, and only read."""
_SESSIONS: Final = "projects"
_LOGIN_SETTINGS: Final = (
    *("apiKeyHelper", "awsAuthRefresh", "awsCredentialExport", "gcpAuthRefresh", "env", "forceLoginMethod"),
    *("forceLoginOrgUUID", "model", "proxyAuthHelper"),
)
"""The user's settings by which it reaches its model. The others may bring hooks, servers and plugins."""
_APPROVALS: Final = ("enableAllProjectMcpServers", "enabledMcpjsonServers", "disabledMcpjsonServers")
"""The servers of a repository that the user approved. Claude Code would move them from its state to the repository."""
_TRUST: Final = ("hasTrustDialogAccepted", "hasCompletedProjectOnboarding")
_OUTER_SESSION: Final = (
    *("CLAUDECODE", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_EXECPATH"),
    *("CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_SSE_PORT"),
)
"""Set by a Claude Code, or an editor, that started this process; the last one brings the editor's tools."""

_REAL_MODEL: Final = (
    *("ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN", "CLAUDE_CODE_USE_ANTHROPIC_AWS", "CLAUDE_CODE_USE_BEDROCK"),
    *("CLAUDE_CODE_USE_FOUNDRY", "CLAUDE_CODE_USE_MANTLE", "CLAUDE_CODE_USE_VERTEX", "HTTPS_PROXY", "HTTP_PROXY"),
    *("http_proxy", "https_proxy"),
)
"""Variables that lead to a real model, which a probe must not reach."""


class Claude(Provider):
    """The provider of Claude Code."""

    name = "claude"
    program = "claude"
    install = "npm install -g @anthropic-ai/claude-code"
    verified = frozenset({"2.1.197"})
    instructions = ("CLAUDE.md", ".claude/CLAUDE.md", "AGENTS.md")
    result_chars = 50_000
    prefix = f"mcp__{SERVER}__"

    def user_setup_query(self, home: Path, environ: Mapping[str, str], /) -> UserSetupQuery:
        config, state = _config_paths(home, environ)
        texts = {"settings": config / _SETTINGS_FILE, "old_state": config / _OLD_STATE, "state": state}
        return UserSetupQuery(texts=texts, links=tuple(config / name for name in (*_USER_CONFIG, _SESSIONS)))

    def plan(self, request: LaunchRequest, /) -> LaunchPlan:
        if request.mode == "native":
            return LaunchPlan(argv=_argv(request, ()), unset=_OUTER_SESSION, stdin=request.prompt or "")
        env = _environment(request)
        config, _ = _config_paths(request.home.folder, request.home.environ)
        server = {
            "type": "stdio",
            "command": request.tool_server.command,
            "args": request.tool_server.args,
            "alwaysLoad": True,
            "timeout": request.tool_server.call_ms,
        }
        files = {
            _MCP_FILE: json_text({"mcpServers": {SERVER: server}}),
            f"{_CONFIG}/{_STATE}": _state(request),
        }
        if ours := _our_prompt(request):  # after the user's; in a file, as an argument may not be long
            _, users_prompt = _without_addition(split_arguments(request.args)[0])
            files[_PROMPT_FILE] = "\n\n".join(filter(None, [users_prompt, ours]))
        if request.mode == "intercept":
            files[_SETTINGS_FILE] = _isolated_settings(request, env)
        else:
            files |= _own_settings(request, env)
        linked = () if request.mode == "intercept" else _USER_CONFIG
        if request.prompt is None:
            linked = (*linked, _SESSIONS)
        return LaunchPlan(
            argv=_argv(request, _options(request)),
            env=env,
            unset=(*_OUTER_SESSION, *_REAL_MODEL) if request.model_url else _OUTER_SESSION,
            files=files,
            folders=(_TEMPORARY,),
            links={f"{_CONFIG}/{name}": config / name for name in linked if config / name in request.home.present},
            # an isolated Claude Code has no commands: it would say so without asking its model, and report success
            stdin=request.prompt_text() if request.mode == "intercept" else request.prompt or "",
        )

    def parser(self) -> ClaudeOutputParser:
        return ClaudeOutputParser(self.is_ours)


PROVIDER: Final = Claude()


def _config_paths(home: Path, environ: Mapping[str, str]) -> tuple[Path, Path]:
    """The user's folder of Claude Code, and the file with its state."""
    own = environ.get("CLAUDE_CONFIG_DIR")
    return (Path(own), Path(own) / _STATE) if own else (home / ".claude", home / _STATE)


# The command line -----------------------------------------------------------------------------------------------------


def _argv(request: LaunchRequest, options: tuple[str, ...]) -> tuple[str, ...]:
    """The command line. The user's arguments come first, so that ours win."""
    given, rest = split_arguments(request.args)
    if _our_prompt(request):
        given, _ = _without_addition(given)
    headless = () if request.prompt is None else ("-p", "--output-format", "stream-json", "--verbose")
    model = ("--model", request.model) if request.model else ()
    added = (_ADDED_FILE, str(request.run / _PROMPT_FILE)) if _our_prompt(request) else ()
    return (request.program, *given, *headless, *options, *model, *added, *rest)


def _options(request: LaunchRequest) -> tuple[str, ...]:
    ours = ("--mcp-config", str(request.run / _MCP_FILE), "--allowedTools", f"mcp__{SERVER}")
    kept = () if request.prompt is None else ("--no-session-persistence",)
    if request.mode == "additive":
        return (*ours, *kept)
    isolated = ("--strict-mcp-config", "--tools", "", "--setting-sources", "", "--no-chrome")
    headless = request.prompt is not None or is_headless("claude", request.args)
    commands = ("--disable-slash-commands",) if headless else ()
    return (*ours, *isolated, *commands, "--settings", str(request.run / _SETTINGS_FILE), *kept)


def _our_prompt(request: LaunchRequest) -> str:
    return "\n\n".join(filter(None, [request.mitigation, request.instructions]))


def _without_addition(args: tuple[str, ...]) -> tuple[tuple[str, ...], str]:
    """The arguments without the user's addition to the system prompt, and that addition: Claude Code accepts only one.
    Raises GatewayError for one in a file, which is not read here."""
    kept: list[str] = []
    added = ""
    words = iter(args)
    for word in words:
        if word == _ADDED_FILE or word.startswith(f"{_ADDED_FILE}="):
            raise GatewayError(
                Problem(
                    code=AGENT_FAILED,
                    message=f"`{_ADDED_FILE}` cannot be used together with what Trunkline adds to the system prompt",
                    where="claude",
                    hint=f"use `{_ADDED}`, or turn the project's instructions off with `--no-instructions`",
                )
            )
        if word == _ADDED:
            added = next(words, "")
        elif word.startswith(f"{_ADDED}="):
            added = word.partition("=")[2]
        else:
            kept.append(word)
    return tuple(kept), added


# The environment ------------------------------------------------------------------------------------------------------


def _environment(request: LaunchRequest) -> dict[str, str]:
    """Makes it wait for our server before its first turn, and use a folder of this run with the user's login."""
    environ = request.home.environ
    config, _ = _config_paths(request.home.folder, environ)
    login = environ.get("CLAUDE_SECURESTORAGE_CONFIG_DIR", environ.get("CLAUDE_CONFIG_DIR", ""))
    env = {
        "CLAUDE_CODE_TMPDIR": str(request.run / _TEMPORARY),
        "CLAUDE_CONFIG_DIR": str(request.run / _CONFIG),
        "CLAUDE_SECURESTORAGE_CONFIG_DIR": login,
        "DISABLE_AUTOUPDATER": "1",
        "MCP_CONNECTION_NONBLOCKING": "0",
        "MCP_CONNECT_TIMEOUT_MS": _CONNECT_MS,
        "MCP_TIMEOUT": _CONNECT_MS,
    }
    if request.mode == "intercept":
        env |= {
            "CLAUDE_CODE_AUTO_CONNECT_IDE": "false",
            "CLAUDE_CODE_DISABLE_AGENT_VIEW": "1",
            "CLAUDE_CODE_DISABLE_ATTACHMENTS": "1",
            "CLAUDE_CODE_DISABLE_AUTO_MEMORY": "1",
            "CLAUDE_CODE_DISABLE_BUNDLED_SKILLS": "1",
            "CLAUDE_CODE_DISABLE_CLAUDE_MDS": "1",
            "CLAUDE_CODE_DISABLE_CRON": "1",
            "CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS": "1",
            "CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL": "1",
            "ENABLE_CLAUDEAI_MCP_SERVERS": "false",
            "MCP_TOOL_TIMEOUT": str(request.tool_server.call_ms),
            "TMPDIR": str(request.run / _TEMPORARY),
            "XDG_CACHE_HOME": str(request.run / "cache"),
        } | safe_environment(environ)
    else:
        env |= {"CLAUDE_CODE_PLUGIN_CACHE_DIR": environ.get("CLAUDE_CODE_PLUGIN_CACHE_DIR", str(config / "plugins"))}
    if request.model_url:
        env |= {"ANTHROPIC_BASE_URL": request.model_url, "ANTHROPIC_API_KEY": "trial"}
        env["CLAUDE_SECURESTORAGE_CONFIG_DIR"] = env["CLAUDE_CONFIG_DIR"]
    return env


# The files ------------------------------------------------------------------------------------------------------------


def _state(request: LaunchRequest) -> str:
    """A copy of the user's state, as Claude Code writes it at every start. Isolated, it has no servers."""
    state = dict(_user_state(request.home))
    keep, names = (_only, _TRUST) if request.mode == "intercept" else (_without, _APPROVALS)
    projects = mapping(state.get("projects")).items()
    state["projects"] = {path: keep(names, mapping(project)) for path, project in projects}
    if request.mode == "intercept":
        state.pop("mcpServers", None)
    return json_text(state)


def _user_state(home: UserSetup) -> Mapping[str, Any]:
    return object_of(home.texts.get("old_state") or home.texts.get("state", ""))


def _isolated_settings(request: LaunchRequest, env: Mapping[str, str]) -> str:
    # a probe needs no login, and the user's `env` would win over what we set
    written = "" if request.model_url else request.home.texts.get("settings", "")
    settings = _only(_LOGIN_SETTINGS, object_of(written))
    if "env" in settings:
        settings["env"] = _without(tuple(env), mapping(settings["env"]))
    return json_text(settings | {"disableAllHooks": True, "disableDeepLinkRegistration": "disable"})


def _own_settings(request: LaunchRequest, env: Mapping[str, str]) -> dict[str, str]:
    """The user's settings, with the approvals in the state for this project, and without what we set."""
    projects = mapping(_user_state(request.home).get("projects"))
    approvals = _only(_APPROVALS, mapping(projects.get(str(request.project))))
    text = request.home.texts.get("settings", "")
    settings = object_of(text)
    changes = {name: value for name, value in approvals.items() if value and name not in settings}
    if (own := mapping(settings.get("env"))).keys() & env.keys():
        changes["env"] = _without(tuple(env), own)
    if changes:
        text = json_text({**settings, **changes})
    return {f"{_CONFIG}/{_SETTINGS_FILE}": text} if text else {}


def _only(names: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: values[name] for name in names if name in values}


def _without(names: tuple[str, ...], values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if name not in names}


_REFUSALS: Final = ("<tool_use_error>Error: No such tool available", "Claude requested permissions to use")
"""How results begin of calls that were not carried out. Anything else counts as carried out, a failure too: the output
of a tool that failed may contain any words."""


class ClaudeOutputParser:
    """Parses `stream-json`: one event per line. `is_ours` tells our tools from its own."""

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        self._is_ours = is_ours
        self._own_calls: dict[str, str] = {}
        self._usage: dict[str, events.TokenUsage] = {}

    def line(self, line: str, /) -> Iterator[events.AgentEvent]:
        event = object_of(line)
        match event.get("type"):
            case "system" if event.get("subtype") == "init":
                yield events.ToolsOffered(tuple(map(text, listed(event.get("tools")))))
            case "system" if event.get("subtype") == "api_retry":
                status = count(event.get("error_status"))  # without one there was no answer at all
                reason = f"status {status} {text(event.get('error'))}".rstrip() if status else "no answer"
                yield events.ModelRetry(count(event.get("attempt")), count(event.get("max_retries")), reason)
            case "assistant":
                yield from self._assistant(mapping(event.get("message")))
            case "user":
                for block in entries(mapping(event.get("message")).get("content")):
                    name = self._own_calls.pop(text(block.get("tool_use_id")), None)
                    if name is not None:
                        content = block.get("content")
                        words = text(content) or " ".join(text(part.get("text")) for part in entries(content))
                        refused = block.get("is_error") is True and words.startswith(_REFUSALS)
                        yield events.NativeToolUsed(name, ran=not refused)
            case "result":
                yield from _result(event)
            case _:
                return

    def _assistant(self, message: Mapping[str, Any]) -> Iterator[events.AgentEvent]:
        for block in entries(message.get("content")):
            if block.get("type") == "text" and (words := text(block.get("text"))):
                yield events.AgentText(words)
            elif block.get("type") == "tool_use" and not self._is_ours(name := text(block.get("name"))):
                self._own_calls[text(block.get("id"))] = name
        self._usage[text(message.get("id"))] = _tokens(message)
        usage = self._usage.values()
        yield events.TokenUsage(sum(one.input_tokens for one in usage), sum(one.output_tokens for one in usage))


def _result(event: Mapping[str, Any]) -> Iterator[events.AgentEvent]:
    """The last event. A refused request to the model has the subtype `success` too, and its message as result."""
    if event.get("usage"):
        yield _tokens(event)
    if event.get("is_error") is True or event.get("subtype") != "success":
        reasons = [text(reason) for reason in listed(event.get("errors"))]
        reason = "; ".join(filter(None, [text(event.get("result")), *reasons]))
        yield events.AgentError(reason or text(event.get("subtype")))
    else:
        yield events.FinalAnswer(text(event.get("result")))


def _tokens(owner: Mapping[str, Any]) -> events.TokenUsage:
    """Tokens read from or written to a cache count as input."""
    usage = mapping(owner.get("usage"))
    names = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    return events.TokenUsage(sum(count(usage.get(name)) for name in names), count(usage.get("output_tokens")))
