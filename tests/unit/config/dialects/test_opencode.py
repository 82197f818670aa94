"""OpenCode's configuration."""

from __future__ import annotations

import json

from tests.support.client_files import load_named, shown
from tests.support.config_files import codes, settings_of


def load(server: str, *, beside: dict[str, str] | None = None, **environ: str):
    text = f'{{"mcp": {{"a": {{{server}}}}}}}'
    return load_named("opencode.json", text, environ=environ, beside=beside)


def test_references() -> None:
    written = ["x", "{env:A}", "a{env:A}b", "${A}", "${env:A}", "{env:a-b}", "{file:f.txt}!", "{other:A}"]
    loaded = load(f'"type": "local", "command": {json.dumps(written)}', beside={"f.txt": " ${A} \n"}, A="1")
    assert codes(loaded) == []
    section = settings_of(loaded).sources["a"]
    assert section.args == ("1", "a1b", "${A}", "$1", "{env:a-b}", "${A}!", "{other:A}")  # type: ignore[attr-defined]


def test_what_a_reference_lacks_is_reported_where_it_stands() -> None:
    loaded = load('"type": "remote", "url": "http://x/", "headers": {"A": "{env:NOPE}", "B": "{file:/none}"}')
    assert shown(loaded) == [
        "1:71 warning TL110: Environment variable `NOPE` is not set",
        "1:90 warning TL100: The file it refers to cannot be read: it does not exist or is not a regular file",
    ]
    assert loaded.problems[0].hint == "set it"
    switched_off = load('"type": "remote", "url": "http://x/", "enabled": false, "headers": {"B": "{file:/none}"}')
    assert [problem.severity for problem in switched_off.problems] == ["warning"]
    assert [settings_of(each).sources["a"].enabled for each in (loaded, switched_off)] == [True, False]


def test_mistakes_have_their_places() -> None:
    text = """{
  "mcp": {
    "text": {"type": "local", "command": "npx -y x"},
    "empty": {"type": "local", "command": []},
    "kind": {"type": "stdio", "command": ["x"]},
    "mixed": {"type": "remote", "command": ["x"]},
    "others": {"type": "local", "command": ["x"], "env": {}, "args": ["y"]},
    "none": {"type": "local"},
    "slip": {"type": "local", "command": ["x"], "enviroment": {}},
    "words": {"type": "local", "command": [5]},
  },
}"""
    loaded = load_named("opencode.json", text)
    assert shown(loaded) == [
        "3:42 error TL103: Expected a list: the program, then its arguments",
        "4:43 error TL103: Expected a list: the program, then its arguments",
        "5:22 error TL104: `stdio` is not one of `local`, `remote`",
        "6:23 error TL113: The type `remote` does not fit a server with a `command`",
        "7:51 error TL102: Unknown key `env`",
        "7:62 error TL102: Unknown key `args`",
        "8:5 error TL105: Missing key `command` or `url`",
        "9:49 error TL102: Unknown key `enviroment`",
        "10:44 error TL103: Expected text, not a number",
    ]
    hints = {problem.span.line: problem.hint for problem in loaded.problems if problem.span}
    assert hints[7] == "did you mean `command`?"
    assert hints[9] == "did you mean `environment`?"


def test_a_server_may_be_called_servers() -> None:
    text = '{"mcp": {"servers": {"type": "local", "command": ["x"]}}}'
    assert list(settings_of(load_named("opencode.json", text)).sources) == ["servers"]
