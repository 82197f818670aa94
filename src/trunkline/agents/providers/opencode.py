"""OpenCode: how it is started so that its tools are ours, or ours beside its own. docs/agents/opencode.md says why."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trunkline.agents.events import Answered, Complained, Looped, Said, Spent, Spoke, Used
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

_RESULT_CHARACTERS: Final = 50_000
_CONFIG_FILES: Final = ("config.json", "opencode.json", "opencode.jsonc")
"""In the order in which OpenCode reads them: the last one counts most."""
_PREFIX: Final = f"{SERVER}_"
_CONFIG: Final = "config"
_OWN: Final = f"{_CONFIG}/opencode"
_PACKAGES: Final = ("package.json", "package-lock.json")
_COPIED: Final = (*_CONFIG_FILES, *_PACKAGES)
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
    result_chars = _RESULT_CHARACTERS

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
        "OPENCODE_PERMISSION": json_text(_OURS_ONLY),
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
    return {name: own / name for name in _CONFIG_FILES} | ({"named": Path(named)} if named else {})


def _argv(asked: Asked) -> tuple[str, ...]:
    place = asked.args.index("--") if "--" in asked.args else len(asked.args)
    headless = () if asked.prompt is None else ("run", "--format", "json")
    model = _TRIAL_MODEL if asked.model_url else asked.model
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


# The configuration that OpenCode is run with: what of the user's is kept, and our server in it.

_OUTPUT: Final = {"max_lines": _RESULT_CHARACTERS + 1, "max_bytes": 4 * _RESULT_CHARACTERS}
_KEPT: Final = (("provider",), ("model",), ("small_model",), ("enabled_providers",), ("disabled_providers",))
"""By which the user comes to the model. All else may bring tools, servers, plugins and programs."""
_INLINE: Final = "OPENCODE_CONFIG_CONTENT"
_SCHEMA: Final = {"$schema": "https://opencode.ai/config.json"}
_QUIET: Final = {"autoupdate": False, "share": "disabled"}
_OURS_ONLY: Final = {"*": "deny", f"{SERVER}_*": "allow"}
"""The later one counts."""
_TRIAL: Final = "trial"
_TRIAL_MODEL: Final = f"{_TRIAL}/{_TRIAL}"
_REFERENCE: Final = re.compile(r"\{file:(?![~/])([^}]+)\}")


def isolated_config(asked: Asked, places: Mapping[str, Path]) -> str:
    """`places` are where the user's configuration was read from, by name."""
    config = _trial(asked) if asked.model_url else _kept(asked, places)
    isolated = {
        "tools": {"*": False, f"{SERVER}_*": True},
        "permission": _OURS_ONLY,
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
    return {"model": _TRIAL_MODEL, "provider": {_TRIAL: provider}}


# What `opencode run` prints in its format `json`: one event per line, each with the part of a message it is about.

_REFUSALS: Final = (
    "Model tried to call unavailable tool",
    "The user has specified a rule which prevents you from using this specific tool call",
    "The user rejected permission to use this specific tool call",
)
"""How it begins to say that a call was not carried out. Any other error counts as carried out."""
_NO_TOOL: Final = "invalid"
"""Called in place of a tool that there is not, or whose arguments are wrong: it only says so."""
_MORE_TO_COME: Final = "tool-calls"
_MOST_EMPTY: Final = 3
"""Steps in a row that end with calls and have none."""


class OpenCodeReader:
    """`is_ours` tells our tools from its own. What the model said in its last step is its answer."""

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        self._is_ours = is_ours
        self._words: list[str] = []
        self._spent = Spent(0, 0)
        self._called = False
        self._empty_steps = 0

    def line(self, line: str, /) -> Iterator[Said]:
        event = object_of(line)
        part = mapping(event.get("part"))
        match event.get("type"):
            case "step_start":
                self._words.clear()
                self._called = False
            case "text" if words := text(part.get("text")):
                self._words.append(words)
                yield Spoke(words)
            case "tool_use":
                self._called = True
                if not self._is_ours(name := text(part.get("tool"))):
                    yield Used(name, ran=name != _NO_TOOL and not _refused(mapping(part.get("state"))))
            case "step_finish":
                yield from self._finished(part)
            case "error":
                yield Complained(_reason(mapping(event.get("error"))))
            case _:
                return

    def _finished(self, part: Mapping[str, Any]) -> Iterator[Said]:
        tokens = mapping(part.get("tokens"))
        cache = mapping(tokens.get("cache"))
        self._spent = Spent(
            self._spent.input_tokens
            + sum(count(value) for value in (tokens.get("input"), cache.get("read"), cache.get("write"))),
            self._spent.output_tokens + sum(count(value) for value in (tokens.get("output"), tokens.get("reasoning"))),
        )
        yield self._spent
        if part.get("reason") != _MORE_TO_COME:
            yield Answered("\n".join(self._words))
            return
        self._empty_steps = 0 if self._called else self._empty_steps + 1
        if self._empty_steps == _MOST_EMPTY:
            yield Looped()


def _refused(state: Mapping[str, Any]) -> bool:
    return state.get("status") == "error" and text(state.get("error")).startswith(_REFUSALS)


def _reason(error: Mapping[str, Any]) -> str:
    message = text(mapping(error.get("data")).get("message")) or text(error.get("message"))
    return message or text(error.get("name")) or "it reported an error"
