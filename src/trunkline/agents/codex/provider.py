"""What it takes to run Codex: its options, its environment, and the folder that it finds in place of its own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trunkline.agents.codex.catalog import strict_catalog
from trunkline.agents.codex.output import RESOURCE_TOOLS, CodexReader
from trunkline.agents.codex.settings import Settings
from trunkline.agents.codex.toml import toml_value
from trunkline.agents.plan import SERVER, Asked, Plan, Wants
from trunkline.agents.precautions import precautions
from trunkline.core.errors import AGENT_FAILED, GatewayError, Problem

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

    def wants(self, home: Path, environ: Mapping[str, str], /) -> Wants:
        own = _own_folder(home, environ)
        return Wants(
            texts={"config": own / _SETTINGS, **{name: own / name for name in (_OVERRIDE, _AGENTS)}, **_MACHINE},
            answers={"models": ("debug", "models", "--bundled")},
            links=tuple(own / name for name in (*_LOGIN, _SESSIONS, _SETTINGS)),
        )

    def plan(self, asked: Asked, /) -> Plan:
        if asked.mode == "native":
            return Plan(argv=_argv(asked, ("--skip-git-repo-check",), _wishes(asked, "")), stdin=asked.prompt or "")
        settings = Settings(asked.home.texts.get("config", ""))
        return _isolated(asked, settings) if asked.mode == "intercept" else _beside(asked, settings)

    def reader(self) -> CodexReader:
        return CodexReader()


PROVIDER: Final = Codex()


# Only our tools -------------------------------------------------------------------------------------------------------


def _isolated(asked: Asked, settings: Settings) -> Plan:
    """It finds a folder of this run's where its own would be: with the user's login, and of the user's settings only
    those for the model. It is not started below its folder for temporary files, where it would not work fully."""
    _need_settings(asked, settings)
    catalog = strict_catalog(asked.home.answers.get("models", ""))
    if not catalog and asked.version in Codex.verified:
        raise GatewayError(_no_catalog())
    options = {**_without_servers(asked), **_server(asked), **_ISOLATED}
    if catalog:
        options["model_catalog_json"] = str(asked.run / _CATALOG)
    if asked.prompt is None or asked.version not in Codex.verified:
        options |= _untrusted((asked.project, *asked.project.parents))
    own = asked.run / _OWN
    return Plan(
        argv=_argv(
            asked,
            ("--ephemeral", "--ignore-rules", "--skip-git-repo-check"),
            (*_options(options), *_features_off(asked), *_wishes(asked, _told(settings, _ABOUT_TOOLS, asked))),
        ),
        env={"CODEX_HOME": str(own), "TMPDIR": str(asked.run / "tmp")} | precautions(asked.home.environ),
        unset=_ELSEWHERE,
        files={
            f"{_OWN}/{_SETTINGS}": settings.for_model(),
            **({_CATALOG: catalog} if catalog else {}),
            **({f"{_OWN}/{_AGENTS}": told} if (told := _instructions(asked)) else {}),
        },
        folders=("tmp",),
        links={f"{_OWN}/{path.name}": path for path in sorted(_linked(asked))},
        stdin=asked.prompt or "",
    )


def _without_servers(asked: Asked) -> dict[str, Any]:
    """Those of the whole machine, which would otherwise be started beside ours."""
    others = [name for file in _MACHINE for name in Settings(asked.home.texts.get(file, "")).servers]
    return {"mcp_servers": {name: {"enabled": False} for name in others}} if others else {}


def _linked(asked: Asked) -> Iterator[Path]:
    """Codex writes through these links: a login that it renews is not lost. A trial needs none, and gets none."""
    own = _own_folder(asked.home.folder, asked.home.environ)
    names = () if asked.model_url else _LOGIN if asked.prompt is not None else (*_LOGIN, _SESSIONS)
    return (own / name for name in names if own / name in asked.home.present)


def _instructions(asked: Asked) -> str:
    """What Codex finds in its own folder: the user's instructions, and then the project's. In a project it would itself
    read any file that a link of this name leads to."""
    texts = asked.home.texts
    users = "" if asked.model_url else texts.get(_OVERRIDE, "").strip() or texts.get(_AGENTS, "").strip()
    return "\n\n".join(filter(None, [users, asked.instructions]))


def _features_off(asked: Asked) -> tuple[str, ...]:
    """`--disable` counts more than all else on a command line, but a version that lacks the feature refuses it."""
    if asked.version in Codex.verified:
        return tuple(word for feature in _OFF for word in ("--disable", feature))
    return _options({f"features.{feature}": False for feature in _OFF})


def _need_settings(asked: Asked, settings: Settings) -> None:
    """Without those of the user, it would send everything to OpenAI instead of the user's own server."""
    file = _own_folder(asked.home.folder, asked.home.environ) / _SETTINGS
    unread = file in asked.home.present and "config" not in asked.home.texts
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


def _beside(asked: Asked, settings: Settings) -> Plan:
    """It runs in the user's own folder. Without a person at it, what it would write there goes to the run's folder, or
    is not written at all."""
    options = _server(asked)
    if not settings.limits_results:
        options["tool_output_token_limit"] = _RESULT_TOKENS
    env: dict[str, str] = {}
    if asked.prompt is not None:
        options["log_dir"] = str(asked.run / "log")
        options |= {} if settings.has_sandbox else {"sandbox_mode": "workspace-write"}
        env["CODEX_SQLITE_HOME"] = str(asked.run / "state")
    if asked.prompt is not None or asked.args[:1] in _UNATTENDED:
        options |= _untrusted(settings.undecided(asked.project))
    return Plan(
        argv=_argv(
            asked,
            ("--ephemeral", "--skip-git-repo-check"),
            (*_options(options), *_wishes(asked, _told(settings, "", asked))),
        ),
        env=env,
        unset=("CODEX_EXEC_SERVER_URL",),
        folders=("log", "state") if env else (),
        stdin=asked.prompt or "",
    )


# Options of both ------------------------------------------------------------------------------------------------------


def _own_folder(home: Path, environ: Mapping[str, str]) -> Path:
    given = environ.get("CODEX_HOME")
    return Path(given) if given else home / ".codex"


def _argv(asked: Asked, headless: tuple[str, ...], options: tuple[str, ...]) -> tuple[str, ...]:
    """What the user gave comes first, a subcommand with its own options too, so that ours counts where both say
    something. After `--` nothing is an option any more."""
    if asked.prompt is not None:
        return (asked.program, "exec", "--json", *headless, *asked.args, *options, "-")
    place = asked.args.index("--") if "--" in asked.args else len(asked.args)
    return (asked.program, *asked.args[:place], *options, *asked.args[place:])


def _options(values: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(word for key, value in values.items() for word in ("-c", f"{key}={toml_value(value)}"))


def _server(asked: Asked) -> dict[str, Any]:
    """Without it there is no run. Its tools are neither asked about, nor hidden behind a search or a program."""
    assert asked.server is not None
    entry = {
        "command": asked.server.command,
        "args": list(asked.server.args),
        "required": True,
        "default_tools_approval_mode": "approve",
        "omit_tools_from": ["deferred", "code_mode"],
        "startup_timeout_sec": _START_S,
        "tool_timeout_sec": int(asked.server.call_s) + 10,
    }
    return {f"mcp_servers.{SERVER}": entry}


def _untrusted(folders: Iterable[Path]) -> dict[str, Any]:
    """What these bring for Codex does not count, and nobody is asked whether it may. Where nothing is said, Codex that
    may write files trusts them, and writes so into the user's settings; one that may only read does neither."""
    return {"projects": {str(folder): {"trust_level": "untrusted"} for folder in folders}}


def _told(settings: Settings, about: str, asked: Asked) -> str:
    """The user's own instructions stay; nothing is said where we have nothing to add."""
    added = [text for text in (about, asked.mitigation) if text]
    return "\n\n".join(filter(None, [settings.developer_instructions, *added])) if added else ""


def _wishes(asked: Asked, instructions: str) -> tuple[str, ...]:
    values: dict[str, Any] = {}
    if asked.model:
        values["model"] = asked.model
    if instructions:
        values["developer_instructions"] = instructions
    if asked.model_url:
        values |= _trial_model(asked.model_url)
    return _options(values)


def _trial_model(url: str) -> dict[str, Any]:
    provider = {"name": _TRIAL, "base_url": f"{url}/v1", "request_max_retries": 0, "stream_max_retries": 0}
    return {"model_provider": _TRIAL, f"model_providers.{_TRIAL}": provider}
