"""Gemini CLI: how it is started so that its tools are ours, or ours beside its own. docs/agents/gemini.md says why."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trunkline.agents.gemini_output import GeminiReader
from trunkline.agents.gemini_settings import RESULT_CHARACTERS, additive_settings, isolated_settings
from trunkline.agents.plan import SERVER, Asked, Plan, Wants
from trunkline.agents.workplace import (
    OTHER_REPOSITORY,
    PROXIES,
    WORKPLACE,
    WORKPLACE_FILES,
    WORKPLACE_FOLDERS,
    whereabouts,
)

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
    result_chars = RESULT_CHARACTERS

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
