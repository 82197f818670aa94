"""OpenCode: how it is started so that its tools are ours, or ours beside its own. docs/agents/opencode.md says why."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Final

from trunkline.agents.opencode_config import (
    CONFIG_FILES,
    OURS_ONLY,
    RESULT_CHARACTERS,
    TRIAL_MODEL,
    additive_content,
    isolated_config,
    with_places,
)
from trunkline.agents.opencode_output import OpenCodeReader
from trunkline.agents.plan import SERVER, Asked, Plan, Wants
from trunkline.agents.user_config import json_text, own_text
from trunkline.agents.workplace import (
    OTHER_REPOSITORY,
    PROXIES,
    WORKPLACE,
    WORKPLACE_FILES,
    WORKPLACE_FOLDERS,
    whereabouts,
)

_PREFIX: Final = f"{SERVER}_"
_CONFIG: Final = "config"
_OWN: Final = f"{_CONFIG}/opencode"
_PACKAGES: Final = ("package.json", "package-lock.json")
_COPIED: Final = (*CONFIG_FILES, *_PACKAGES)
"""Files of the user's that OpenCode may write to by itself, at any start."""
_TMP: Final = "tmp"
_ELSEWHERE: Final = ("OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG_DIR", "OPENCODE_TUI_CONFIG")
_TOOLS_IN_A_TOOL: Final = ("OPENCODE_EXPERIMENTAL", "OPENCODE_EXPERIMENTAL_CODE_MODE")
"""With one of these set, tools of servers are not offered, but one tool of its own that runs programs which call them:
denied here as all of its own are, so that there would be none at all."""
_NOTHING_TO_INSTALL: Final = json_text({"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}})
"""Where the folder of its configuration has packages, it looks here whether one is missing."""


class OpenCode:
    name = "opencode"
    program = "opencode"
    install = "npm install -g opencode-ai"
    verified = frozenset({"1.18.33"})
    instructions = ("AGENTS.md", "CLAUDE.md")
    result_chars = RESULT_CHARACTERS

    def is_ours(self, tool: str, /) -> bool:
        return tool.startswith(_PREFIX)

    def wants(self, home: Path, environ: Mapping[str, str], /) -> Wants:
        config = _config_home(home, environ)
        copied = {name: config / "opencode" / name for name in _COPIED}
        places = _places(home, environ)
        return Wants(texts=copied | places, links=tuple(places.values()), folders=(config, config / "opencode"))

    def plan(self, asked: Asked, /) -> Plan:
        match asked.mode:
            case "intercept":
                return _isolated(asked)
            case "additive":
                return _additive(asked)
            case "native":
                return Plan(argv=_argv(asked), env=_quiet(asked), folders=(_TMP,), stdin=_told(asked))

    def reader(self) -> OpenCodeReader:
        return OpenCodeReader(self.is_ours)


PROVIDER: Final = OpenCode()


def _isolated(asked: Asked) -> Plan:
    """It is started in a folder of the run's: plugins of a project are run whatever it is told. Its home and the folder
    of its configuration are empty ones, but login and history are where they always are."""
    places = _places(asked.home.folder, asked.home.environ)
    env = {
        "OPENCODE_DISABLE_CLAUDE_CODE": "1",
        "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
        "OPENCODE_PERMISSION": json_text(OURS_ONLY),
        "OPENCODE_PURE": "1",
        "OPENCODE_TEST_HOME": str(asked.run / "home"),
        "XDG_CONFIG_HOME": str(asked.run / _CONFIG),
    }
    return Plan(
        argv=_argv(asked),
        env=_quiet(asked) | env | _trial_environment(asked),
        unset=_ELSEWHERE + _TOOLS_IN_A_TOOL + OTHER_REPOSITORY + (PROXIES if asked.model_url else ()),
        files={
            **WORKPLACE_FILES,
            f"{_OWN}/opencode.json": isolated_config(asked, places),
            f"{_OWN}/package-lock.json": _NOTHING_TO_INSTALL,
            f"{_OWN}/AGENTS.md": whereabouts(asked),
        },
        folders=(WORKPLACE, *WORKPLACE_FOLDERS, f"{_OWN}/node_modules", "home", _TMP),
        cwd=WORKPLACE,
        stdin=asked.prompt or "",
    )


def _additive(asked: Asked) -> Plan:
    """All that is the user's is there, by links; but for the files that OpenCode writes to, of which these are copies.
    Programs that it starts look into the same folder for their own configuration."""
    config = _config_home(asked.home.folder, asked.home.environ)
    own = config / "opencode"
    beside = [name for name in asked.home.entries.get(config, ()) if name != "opencode"]
    mine = [name for name in asked.home.entries.get(own, ()) if name not in _COPIED]
    texts = {name: text for name in _COPIED if (text := own_text(asked.home, name, own / name))}
    return Plan(
        argv=_argv(asked),
        env=_quiet(asked)
        | {"OPENCODE_CONFIG_CONTENT": additive_content(asked), "XDG_CONFIG_HOME": str(asked.run / _CONFIG)},
        files={f"{_OWN}/{name}": with_places(text, own) for name, text in texts.items()},
        folders=(_OWN, _TMP),
        links={f"{_CONFIG}/{name}": config / name for name in beside} | {f"{_OWN}/{name}": own / name for name in mine},
        stdin=_told(asked),
    )


def _config_home(home: Path, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config")


def _places(home: Path, environ: Mapping[str, str]) -> dict[str, Path]:
    """Where the user's configuration is, in the order in which it counts more."""
    own = _config_home(home, environ) / "opencode"
    named = environ.get("OPENCODE_CONFIG")
    return {name: own / name for name in CONFIG_FILES} | ({"named": Path(named)} if named else {})


def _argv(asked: Asked) -> tuple[str, ...]:
    place = asked.args.index("--") if "--" in asked.args else len(asked.args)
    headless = () if asked.prompt is None else ("run", "--format", "json")
    model = TRIAL_MODEL if asked.model_url else asked.model
    given = (*asked.args[:place], *((f"--model={model}",) if model else ()), *asked.args[place:])
    return (asked.program, *headless, *given)


def _quiet(asked: Asked) -> dict[str, str]:
    """At every start it unpacks a library into the folder for temporary files, and leaves it there."""
    return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "TMPDIR": str(asked.run / _TMP)}


def _trial_environment(asked: Asked) -> dict[str, str]:
    """A trial is no part of the user's history."""
    if not asked.model_url:
        return {}
    folders = {name: str(asked.run / name.lower()) for name in ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")}
    return {**folders, "OPENCODE_DISABLE_MODELS_FETCH": "1"}


def _told(asked: Asked) -> str:
    prompt = asked.prompt or ""
    return f"{asked.mitigation}\n\n{prompt}" if asked.mitigation and prompt else prompt
