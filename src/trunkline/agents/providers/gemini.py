"""Gemini CLI: how it is started so that its tools are ours, or ours beside its own. docs/agents/gemini.md says why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trunkline.agents.events import Answered, Complained, Said, Spent, Spoke, Used
from trunkline.agents.loose_json import count, mapping, object_of, text
from trunkline.agents.providers.isolation import (
    OTHER_REPOSITORY,
    PROXIES,
    WORKPLACE,
    WORKPLACE_FILES,
    WORKPLACE_FOLDERS,
    json_text,
    merged,
    own_text,
    picked,
    read_config,
    whereabouts,
)
from trunkline.agents.providers.provider import SERVER, Asked, Plan, Wants
from trunkline.config.env_file import parse_env_file

_RESULT_CHARACTERS: Final = 50_000
_PREFIX: Final = f"mcp_{SERVER}_"
_OWN: Final = ".gemini"
_SETTINGS: Final = "settings.json"
_MEMORY: Final = "GEMINI.md"
_IMPORT: Final = re.compile(r"(?<!\S)@")
_POLICY: Final = "policy.toml"
_HOME: Final = "home"
_TMP: Final = "tmp"
_LOGIN: Final = ("gemini-credentials.json", "google_accounts.json", "installation_id", "oauth_creds.json")
"""Of the user's folder, what a login consists of. Gemini writes a renewed one in place, so through a link as well."""
_BESIDE: Final = (".agents", ".env")
_OUTER_SESSION: Final = (
    *("GEMINI_CLI_ACTIVITY_LOG_TARGET", "GEMINI_CLI_IDE_AUTH_TOKEN", "GEMINI_CLI_IDE_PID"),
    *("GEMINI_CLI_IDE_SERVER_PORT", "GEMINI_CLI_IDE_SERVER_STDIO_ARGS", "GEMINI_CLI_IDE_SERVER_STDIO_COMMAND"),
    *("GEMINI_CLI_IDE_WORKSPACE_PATH", "GEMINI_CLI_TRUSTED_FOLDERS_PATH", "GEMINI_RESTRICTED_MODE"),
    *("GEMINI_SYSTEM_MD", "GEMINI_WRITE_SYSTEM_MD"),
)
"""What would connect an isolated one with an editor, or have it look at other places than this run's."""
_OTHER_MODELS: Final = ("GOOGLE_API_KEY", "GOOGLE_GENAI_USE_GCA", "GOOGLE_GENAI_USE_VERTEXAI", *PROXIES)
_TRIAL_MODEL: Final = "gemini-2.5-pro"
"""Not the default, `auto`: there another model is asked first which model to ask."""
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


class Gemini:
    name = "gemini"
    program = "gemini"
    install = "npm install -g @google/gemini-cli"
    verified = frozenset({"0.61.0"})
    instructions = (_MEMORY, "AGENTS.md")
    result_chars = _RESULT_CHARACTERS

    def is_ours(self, tool: str, /) -> bool:
        return tool.startswith(_PREFIX)

    def wants(self, home: Path, environ: Mapping[str, str], /) -> Wants:
        place = _home(home, environ)
        own = place / _OWN
        return Wants(
            texts={"settings": own / _SETTINGS, "variables": own / ".env", "home_variables": place / ".env"},
            links=tuple(own / name for name in (*_LOGIN, _SETTINGS)) + tuple(place / name for name in _BESIDE),
            folders=(own,),
        )

    def plan(self, asked: Asked, /) -> Plan:
        match asked.mode:
            case "intercept":
                return _isolated(asked)
            case "additive":
                return _additive(asked)
            case "native":
                return Plan(argv=_argv(asked, ()), env=_environment(asked), folders=(_TMP,), stdin=_told(asked))

    def reader(self) -> GeminiReader:
        return GeminiReader(self.is_ours)


PROVIDER: Final = Gemini()


def _isolated(asked: Asked) -> Plan:
    """It is started in a folder of the run's: a trusted project's `.env` and settings would count, and in one that is
    not trusted it starts no server. Links lead to the user's login."""
    home = asked.home
    own = _home(home.folder, home.environ) / _OWN
    policy = str(asked.run / _POLICY)
    options = ("--allowed-mcp-server-names", SERVER, "-e", "none", "--admin-policy", policy, "--policy", policy)
    variables = home.texts.get("variables", home.texts.get("home_variables", ""))
    return Plan(
        argv=_argv(asked, options),
        env=_environment(asked) | {"GEMINI_CLI_TRUST_WORKSPACE": "true", "GEMINI_SANDBOX": "false"},
        unset=_OUTER_SESSION + OTHER_REPOSITORY + (_OTHER_MODELS if asked.model_url else ()),
        files={
            **WORKPLACE_FILES,
            _POLICY: _RULES,
            f"{WORKPLACE}/{_OWN}/.env": "" if asked.model_url else variables,
            f"{WORKPLACE}/{_MEMORY}": _without_imports(whereabouts(asked)),
            f"{_HOME}/{_OWN}/{_SETTINGS}": isolated_settings(asked, own / _SETTINGS),
        },
        folders=(WORKPLACE, *WORKPLACE_FOLDERS, _TMP),
        links={
            f"{_HOME}/{_OWN}/{name}": own / name
            for name in _LOGIN
            if own / name in home.present and not asked.model_url
        },
        cwd=WORKPLACE,
        stdin=_no_command(asked.prompt or ""),
    )


def _additive(asked: Asked) -> Plan:
    """All that is the user's is there, by links; but for the settings, into a copy of which our server is put."""
    place = _home(asked.home.folder, asked.home.environ)
    own = place / _OWN
    names = [name for name in asked.home.entries.get(own, ()) if name != _SETTINGS]
    links = {f"{_HOME}/{_OWN}/{name}": own / name for name in names}
    links |= {f"{_HOME}/{name}": place / name for name in _BESIDE if place / name in asked.home.present}
    return Plan(
        argv=_argv(asked, () if asked.prompt is None else ("--skip-trust",)),
        env=_environment(asked),
        files={f"{_HOME}/{_OWN}/{_SETTINGS}": additive_settings(asked, own / _SETTINGS)},
        folders=(_TMP,),
        links=links,
        stdin=_told(asked),
    )


def _without_imports(text: str) -> str:
    """For `@path`, Gemini would put in that file of the folder it is started in, where the user's variables are."""
    return _IMPORT.sub(r"\\@", text)


def _home(home: Path, environ: Mapping[str, str]) -> Path:
    """The folder that Gemini takes for the user's home."""
    return Path(environ.get("GEMINI_CLI_HOME") or home)


def _argv(asked: Asked, options: tuple[str, ...]) -> tuple[str, ...]:
    """What the user gave comes first: some of our options take every word that follows."""
    place = asked.args.index("--") if "--" in asked.args else len(asked.args)
    headless = () if asked.prompt is None else ("-o", "stream-json")
    model = asked.model or (_TRIAL_MODEL if asked.model_url else "")
    return (
        *(asked.program, *asked.args[:place], *options, *headless),
        *((f"--model={model}",) if model else ()),
        *asked.args[place:],
    )


def _environment(asked: Asked) -> dict[str, str]:
    """Without a second process between us and it, which would keep signals to itself. When something goes wrong it puts
    the whole conversation into the folder for temporary files."""
    env = {"GEMINI_CLI_NO_RELAUNCH": "true", "TMPDIR": str(asked.run / _TMP)}
    if asked.mode != "native":
        env["GEMINI_CLI_HOME"] = str(asked.run / _HOME)
    if asked.model_url:
        env |= {"GOOGLE_GEMINI_BASE_URL": asked.model_url, "GEMINI_API_KEY": "trial"}
    return env


def _told(asked: Asked) -> str:
    prompt = asked.prompt or ""
    return f"{asked.mitigation}\n\n{prompt}" if asked.mitigation and prompt else prompt


def _no_command(prompt: str) -> str:
    """A prompt that begins with a slash would be taken for a command."""
    return f"\n{prompt}" if prompt.startswith("/") else prompt


# The settings that Gemini CLI is run with: what of the user's is kept, and our server in them.

_WRAPPING: Final = 1000
"""What Gemini puts around a result counts as well."""
_THRESHOLD: Final = _RESULT_CHARACTERS + _WRAPPING
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


# What Gemini CLI prints in its format `stream-json`: one event per line, from its first words to its result.

_REFUSALS: Final = ("tool_not_registered", "policy_violation", "invalid_tool_params")
"""Errors of a call that was not carried out. Any other counts as carried out."""


class GeminiReader:
    """`is_ours` tells our tools from its own. What the model said since its last call is its answer."""

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        self._is_ours = is_ours
        self._own_calls: dict[str, str] = {}
        self._words: list[str] = []

    def line(self, line: str, /) -> Iterator[Said]:
        event = object_of(line)
        match event.get("type"):
            case "message" if event.get("role") == "assistant" and (words := text(event.get("content"))):
                self._words.append(words)
                yield Spoke(words)
            case "tool_use":
                self._words.clear()
                if not self._is_ours(name := text(event.get("tool_name"))):
                    self._own_calls[text(event.get("tool_id"))] = name
            case "tool_result" if (own := self._own_calls.pop(text(event.get("tool_id")), None)) is not None:
                yield Used(own, ran=not _refused(event))
            case "error" if event.get("severity") == "error":
                yield Complained(text(event.get("message")))
            case "result":
                yield from self._result(event)
            case _:
                return

    def _result(self, event: Mapping[str, Any]) -> Iterator[Said]:
        stats = mapping(event.get("stats"))
        yield Spent(count(stats.get("input_tokens")), count(stats.get("output_tokens")))
        if event.get("status") == "success":
            yield Answered("".join(self._words))
        else:
            yield Complained(text(mapping(event.get("error")).get("message")) or "it ended with an error")


def _refused(event: Mapping[str, Any]) -> bool:
    return event.get("status") == "error" and text(mapping(event.get("error")).get("type")) in _REFUSALS
