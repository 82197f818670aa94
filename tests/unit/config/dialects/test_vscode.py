"""VS Code's `mcp.json`."""

from __future__ import annotations

from tests.support.client_files import load_named, shown
from tests.support.config_files import codes, settings_of, unready


def load(server: str, more: str = "", **environ: str):
    return load_named(".vscode/mcp.json", f'{{{more} "servers": {{"a": {{{server}}}}}}}', environ=environ)


def test_an_input_is_taken_from_a_variable() -> None:
    server = '"command": "x", "env": {"K": "${input:my-api.key}"}'
    assert settings_of(load(server, INPUT_MY_API_KEY="k")).sources["a"].env == {"K": "k"}  # type: ignore[attr-defined]
    loaded = load(server)
    assert shown(loaded) == ["1:50 warning TL110: Environment variable `INPUT_MY_API_KEY` is not set"]
    assert loaded.problems[0].hint == "set it: the editor asks for `my-api.key`, Trunkline takes it from this variable"


def test_the_default_of_an_input_stands_in_for_an_answer() -> None:
    inputs = '"inputs": [{"id": "r", "type": "pickString", "default": "eu$}"}, {"id": "s"}, 5],'
    server = '"command": "x", "args": ["${input:r}"]'
    assert settings_of(load(server, inputs)).sources["a"].args == ("eu$}",)  # type: ignore[attr-defined]
    assert settings_of(load(server, inputs, INPUT_R="us")).sources["a"].args == ("us",)  # type: ignore[attr-defined]


def test_what_only_the_editor_knows_keeps_the_server_down_with_a_way_out() -> None:
    for reference in ("${command:pick.it}", "${config:editor.tabSize}"):
        loaded = load(f'"command": "x", "args": ["{reference}"]')
        assert shown(loaded) == ["1:46 warning TL104: The text contains a reference that only the editor can resolve"]
        assert loaded.problems[0].hint == "write the value out, or `${env:NAME}`"
        assert unready(loaded) == {"a": ("The text contains a reference that only the editor can resolve",)}


def test_a_plain_reference_is_none_here() -> None:
    loaded = load('"command": "x", "args": ["${HOME}", "${a-b}"]')
    assert shown(loaded) == ["1:46 warning TL104: `${HOME}` is not a reference here and is left unchanged"]
    assert loaded.problems[0].hint == "write `${env:HOME}` for the variable"
    assert settings_of(loaded).sources["a"].args == ("${HOME}", "${a-b}")  # type: ignore[attr-defined]


def test_programs_are_started_as_the_editor_starts_them() -> None:
    server = '"command": "./run", "cwd": "${workspaceFolder}/src", "args": ["~/a", "~", "x~/b", "~b"]'
    section = settings_of(load(server)).sources["a"]
    assert section.command.endswith("/src/run")  # type: ignore[attr-defined]
    assert section.args == ("/home/me/a", "/home/me", "x~/b", "~b")  # type: ignore[attr-defined]
    for command in ("/bin/run", "run"):
        found = settings_of(load(f'"command": "{command}", "cwd": "src"')).sources["a"]
        assert found.command == command  # type: ignore[attr-defined]


def test_what_is_given_for_path_comes_after_what_is_there() -> None:
    server = '"command": "x", "env": {"PATH": "/opt/${env:V}"}'
    assert settings_of(load(server, V="v")).sources["a"].env == {"PATH": "/opt/v"}  # type: ignore[attr-defined]
    section = settings_of(load(server, V="v", PATH="/bin:/usr/bin")).sources["a"]
    assert section.env == {"PATH": "/bin:/usr/bin:/opt/v"}  # type: ignore[attr-defined]


def test_a_file_of_variables_that_is_not_there() -> None:
    assert shown(load('"command": "x", "envFile": "${workspaceFolder}/.env"')) == [
        "1:48 warning TL100: The file it refers to cannot be read: it does not exist or is not a regular file"
    ]
    assert codes(load('"url": "http://x/", "envFile": ".env"')) == ["TL120"]


def test_a_literal_secret_gets_a_hint_that_the_editor_understands() -> None:
    loaded = load('"url": "http://x/", "headers": {"Authorization": "Bearer 0123456789abc"}')
    assert [problem.hint for problem in loaded.problems] == ["keep it in the environment: `${env:TOKEN}`"]


def test_mistakes_have_their_places() -> None:
    text = """{
  "servers": {
    // a comment
    "slip": {"command": "x", "envfile": ".env"},
    "type": {"type": "http", "command": "x"},
    "socket": {"type": "http", "url": "unix:///run/x.sock"},
    "sandboxed": {"command": "x", "sandboxEnabled": true, "sandbox": {}},
  },
}"""
    assert shown(load_named(".vscode/mcp.json", text)) == [
        "4:30 error TL102: Unknown key `envfile`",
        "5:22 error TL113: The type `http` does not fit a server with a `command`",
        "6:39 error TL104: A URL starts with `http://` or `https://`, names a host, and has no `#` part",
        "7:35 warning TL120: `sandboxEnabled` is for the client and is ignored here",
        "7:59 warning TL120: `sandbox` is for the client and is ignored here",
    ]


def test_what_is_wrong_with_the_syntax_has_its_place() -> None:
    assert shown(load_named(".vscode/mcp.json", '{\n  // fine\n  "servers": {,}\n}'))[0].startswith("3:15 error TL101")
    assert shown(load_named(".vscode/mcp.json", '{"servers": {} /* no end'))[0].startswith("1:16 error TL101")
