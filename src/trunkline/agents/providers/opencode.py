"""OpenCode: started so that its tools are ours, or ours beside its own. docs/agents/opencode.md gives the reasons."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from trunkline.agents import events
from trunkline.agents.lenient_json import count, mapping, object_of, text
from trunkline.agents.providers import isolation
from trunkline.agents.providers.arguments import split_arguments
from trunkline.agents.providers.provider import SERVER, LaunchPlan, LaunchRequest, Provider, UserSetupQuery

_RESULT_CHARACTERS: Final = 50_000
_CONFIG_FILES: Final = ("config.json", "opencode.json", "opencode.jsonc")
"""In the order in which OpenCode reads them; the last one wins."""

_CONFIG: Final = "config"
_OWN: Final = f"{_CONFIG}/opencode"
_PACKAGES: Final = ("package.json", "package-lock.json")
_COPIED: Final = (*_CONFIG_FILES, *_PACKAGES)
"""The user's files that OpenCode may write to at any start."""
_TMP: Final = "tmp"
_ELSEWHERE: Final = ("OPENCODE_CONFIG", "OPENCODE_CONFIG_CONTENT", "OPENCODE_CONFIG_DIR", "OPENCODE_TUI_CONFIG")
_TOOLS_IN_A_TOOL: Final = ("OPENCODE_EXPERIMENTAL", "OPENCODE_EXPERIMENTAL_CODE_MODE")
"""With one of these set it offers, in place of the servers' tools, one of its own that runs programs calling them. That
is denied here like all of its own, so there would be no tools at all."""
_NOTHING_TO_INSTALL: Final = isolation.json_text({"packages": {"": {"dependencies": {"@opencode-ai/plugin": "*"}}}})
"""What it compares the packages in the folder of its configuration with."""


class OpenCode(Provider):
    """The provider of OpenCode."""

    name = "opencode"
    program = "opencode"
    install = "npm install -g opencode-ai"
    verified = frozenset({"1.18.33"})
    instructions = ("AGENTS.md", "CLAUDE.md")
    result_chars = _RESULT_CHARACTERS
    prefix = f"{SERVER}_"

    def user_setup_query(self, home: Path, environ: Mapping[str, str], /) -> UserSetupQuery:
        config = _config_home(home, environ)
        copied = {name: config / "opencode" / name for name in _COPIED}
        files = _config_files(home, environ)
        return UserSetupQuery(texts=copied | files, links=tuple(files.values()), folders=(config, config / "opencode"))

    def plan(self, request: LaunchRequest, /) -> LaunchPlan:
        if request.mode == "native":
            return LaunchPlan(argv=_argv(request), env=_quiet(request), folders=(_TMP,), stdin=request.prompt or "")
        return _isolated(request) if request.mode == "intercept" else _additive(request)

    def parser(self) -> OpenCodeOutputParser:
        return OpenCodeOutputParser(self.is_ours)


PROVIDER: Final = OpenCode()


def _isolated(request: LaunchRequest) -> LaunchPlan:
    """The plan for our tools alone. It is started in a folder of the run: plugins of a project would run in any case.
    Its home and configuration folder are empty, but login and history stay where they are."""
    files = _config_files(request.home.folder, request.home.environ)
    env = {
        "OPENCODE_DISABLE_CLAUDE_CODE": "1",
        "OPENCODE_DISABLE_EXTERNAL_SKILLS": "1",
        "OPENCODE_DISABLE_LSP_DOWNLOAD": "1",
        "OPENCODE_DISABLE_PROJECT_CONFIG": "1",
        "OPENCODE_PERMISSION": isolation.json_text(_OURS_ONLY),
        "OPENCODE_PURE": "1",
        "OPENCODE_TEST_HOME": str(request.run / "home"),
        "XDG_CONFIG_HOME": str(request.run / _CONFIG),
    }
    if request.model_url:  # keeps a probe out of the user's history
        folders = ("XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME")
        env |= {name: str(request.run / name.lower()) for name in folders} | {"OPENCODE_DISABLE_MODELS_FETCH": "1"}
    return LaunchPlan(
        argv=_argv(request),
        env=_quiet(request) | env,
        unset=_ELSEWHERE
        + _TOOLS_IN_A_TOOL
        + isolation.GIT_VARIABLES
        + (isolation.PROXY_VARIABLES if request.model_url else ()),
        files={
            **isolation.WORK_FOLDER_FILES,
            f"{_OWN}/opencode.json": _isolated_config(request, files),
            f"{_OWN}/package-lock.json": _NOTHING_TO_INSTALL,
            f"{_OWN}/AGENTS.md": isolation.project_notice(request),
        },
        folders=(isolation.WORK_FOLDER, *isolation.WORK_SUBFOLDERS, f"{_OWN}/node_modules", "home", _TMP),
        cwd=isolation.WORK_FOLDER,
        stdin=request.prompt or "",
    )


def _additive(request: LaunchRequest) -> LaunchPlan:
    """The plan for our tools beside its own: links to the user's files, and copies of those that OpenCode writes to.
    Programs that it starts use the same folder for their own configuration."""
    config = _config_home(request.home.folder, request.home.environ)
    own = config / "opencode"
    entries = request.home.entries
    links = {f"{_CONFIG}/{name}": config / name for name in entries.get(config, ()) if name != "opencode"}
    links |= {f"{_OWN}/{name}": own / name for name in entries.get(own, ()) if name not in _COPIED}
    texts = {name: text for name in _COPIED if (text := isolation.user_text(request.home, name, own / name))}
    inline = isolation.merged(_SCHEMA | _inline(request), _QUIET | _ours(request))
    env = {_INLINE: isolation.json_text(inline), "XDG_CONFIG_HOME": str(request.run / _CONFIG)}
    return LaunchPlan(
        argv=_argv(request),
        env=_quiet(request) | env,
        files={f"{_OWN}/{name}": _with_absolute_references(text, own) for name, text in texts.items()},
        folders=(_OWN, _TMP),
        links=links,
        stdin=request.prompt or "",
    )


def _config_home(home: Path, environ: Mapping[str, str]) -> Path:
    return Path(environ.get("XDG_CONFIG_HOME") or home / ".config")


def _config_files(home: Path, environ: Mapping[str, str]) -> dict[str, Path]:
    """The user's configuration files; later ones win."""
    own = _config_home(home, environ) / "opencode"
    named = environ.get("OPENCODE_CONFIG")
    return {name: own / name for name in _CONFIG_FILES} | ({"named": Path(named)} if named else {})


def _argv(request: LaunchRequest) -> tuple[str, ...]:
    given, rest = split_arguments(request.args)
    headless = () if request.prompt is None else ("run", "--format", "json")
    model = _PROBE_MODEL if request.model_url else request.model
    return (request.program, *headless, *given, *((f"--model={model}",) if model else ()), *rest)


def _quiet(request: LaunchRequest) -> dict[str, str]:
    """Turns updates off, and sets the folder for temporary files, where it leaves a library at every start."""
    return {"OPENCODE_DISABLE_AUTOUPDATE": "1", "TMPDIR": str(request.run / _TMP)}


_OUTPUT: Final = {"max_lines": _RESULT_CHARACTERS + 1, "max_bytes": 4 * _RESULT_CHARACTERS}
_KEPT: Final = (("provider",), ("model",), ("small_model",), ("enabled_providers",), ("disabled_providers",))
"""The settings by which it reaches its model. All others may bring tools, servers, plugins and programs."""
_INLINE: Final = "OPENCODE_CONFIG_CONTENT"
_SCHEMA: Final = {"$schema": "https://opencode.ai/config.json"}
_QUIET: Final = {"autoupdate": False, "share": "disabled"}
_OURS_ONLY: Final = {"*": "deny", f"{SERVER}_*": "allow"}
"""The later rule wins."""
_ISOLATED: Final = {
    "tools": {"*": False, f"{SERVER}_*": True},
    "permission": _OURS_ONLY,
    "snapshot": False,
    "formatter": False,
    "lsp": False,
}
_PROBE: Final = "trial"
_PROBE_MODEL: Final = f"{_PROBE}/{_PROBE}"
_REFERENCE: Final = re.compile(r"\{file:(?![~/])([^}]+)\}")


def _isolated_config(request: LaunchRequest, files: Mapping[str, Path]) -> str:
    """The configuration for our tools alone. `files` are the user's files, by name."""
    if request.model_url:
        provider = {
            "npm": "@ai-sdk/openai-compatible",
            "options": {"baseURL": f"{request.model_url}/v1", "apiKey": _PROBE},
            "models": {_PROBE: {"tool_call": True}},
        }
        config = {"model": _PROBE_MODEL, "provider": {_PROBE: provider}}
    else:
        config: dict[str, Any] = {}
        for name, file in files.items():
            written = _with_absolute_references(isolation.user_text(request.home, name, file), file.parent)
            config = isolation.merged(config, isolation.picked(isolation.read_config(written, str(file)), _KEPT))
        config = isolation.merged(config, isolation.picked(_inline(request), _KEPT))
    return isolation.json_text(_SCHEMA | config | _QUIET | _ISOLATED | _ours(request))


def _with_absolute_references(text: str, folder: Path) -> str:
    """Make references to files absolute, as they are relative to the file of which this is a copy."""
    return _REFERENCE.sub(lambda match: f"{{file:{folder / match[1]}}}", text)


def _inline(request: LaunchRequest) -> dict[str, Any]:
    return isolation.read_config(request.home.environ.get(_INLINE, ""), _INLINE)


def _ours(request: LaunchRequest) -> dict[str, Any]:
    server = request.tool_server
    command = [server.command, *server.args]
    entry = {"type": "local", "command": command, "enabled": True, "timeout": server.call_ms}
    return {"mcp": {SERVER: entry}, "tool_output": _OUTPUT}


_REFUSALS: Final = (
    "Model tried to call unavailable tool",
    "The user has specified a rule which prevents you from using this specific tool call",
    "The user rejected permission to use this specific tool call",
)
"""How errors begin of calls that were not carried out. Any other counts as carried out."""
_NO_TOOL: Final = "invalid"
"""Called in place of a tool that does not exist, or whose arguments are wrong; it only says so."""
_MORE_TO_COME: Final = "tool-calls"
_MOST_EMPTY: Final = 3
"""Steps in a row that announce calls and have none."""


class OpenCodeOutputParser:
    """Parses `opencode run --format json`: one event per line. What the model said in its last step is its answer."""

    def __init__(self, is_ours: Callable[[str], bool]) -> None:
        self._is_ours = is_ours
        self._texts: list[str] = []
        self._usage = events.TokenUsage(0, 0)
        self._called = False
        self._empty_steps = 0

    def line(self, line: str, /) -> Iterator[events.AgentEvent]:
        event = object_of(line)
        part = mapping(event.get("part"))
        match event.get("type"):
            case "step_start":
                self._texts.clear()
                self._called = False
            case "text" if words := text(part.get("text")):
                self._texts.append(words)
                yield events.AgentText(words)
            case "tool_use":
                self._called = True
                if not self._is_ours(name := text(part.get("tool"))):
                    state = mapping(part.get("state"))
                    refused = state.get("status") == "error" and text(state.get("error")).startswith(_REFUSALS)
                    yield events.NativeToolUsed(name, ran=name != _NO_TOOL and not refused)
            case "step_finish":
                yield from self._finished(part)
            case "error":
                error = mapping(event.get("error"))
                reason = text(mapping(error.get("data")).get("message")) or text(error.get("message"))
                yield events.AgentError(reason or text(error.get("name")) or "it reported an error")
            case _:
                return

    def _finished(self, part: Mapping[str, Any]) -> Iterator[events.AgentEvent]:
        tokens = mapping(part.get("tokens"))
        cache = mapping(tokens.get("cache"))
        read = sum(map(count, (tokens.get("input"), cache.get("read"), cache.get("write"))))
        written = sum(map(count, (tokens.get("output"), tokens.get("reasoning"))))
        self._usage = events.TokenUsage(self._usage.input_tokens + read, self._usage.output_tokens + written)
        yield self._usage
        if part.get("reason") != _MORE_TO_COME:
            yield events.FinalAnswer("\n".join(self._texts))
            return
        self._empty_steps = 0 if self._called else self._empty_steps + 1
        if self._empty_steps == _MOST_EMPTY:
            yield events.ModelLooping()
