"""Codex's `config.toml`."""

from __future__ import annotations

from tests.support.client_files import load_named, shown
from tests.support.config_files import codes, settings_of

from trunkline.config.problems import render


def load(text: str, **environ: str):
    return load_named("config.toml", text, environ=environ)


def test_mistakes_have_their_places() -> None:
    text = """\
model = "x"

[mcp_servers.slip]
comand = "x"
command = "x"

[mcp_servers.both]
command = "x"
url = "http://x/"

[mcp_servers.others]
url = "http://x/"
headers = { A = "b" }
timeout = 5

[mcp_servers."a b".env]
A = 1

[mcp_servers.types]
command = "x"
args = "y"
enabled = "yes"
startup_timeout_sec = 0
tool_timeout_sec = 99_999_999

[mcp_servers.token]
url = "http://x/"
bearer_token_env_var = "not a name"

[mcp_servers.token2]
url = "http://x/"
bearer_token = "hunter2"
env_http_headers = ["A"]
"""
    loaded = load(text)
    assert shown(loaded) == [
        "4:1 error TL102: Unknown key `comand`",
        "9:1 error TL113: `command` and `url` are mutually exclusive",
        "13:1 error TL102: Unknown key `headers`",
        "14:1 error TL102: Unknown key `timeout`",
        "16:14 error TL105: Missing key `command` or `url`",
        "21:8 error TL103: Expected a list, not text",
        "22:11 error TL103: Expected `true` or `false`, not text",
        "23:23 error TL104: The number of seconds must be more than 0",
        "24:20 error TL104: The number of seconds must be at most 86400",
        "28:24 error TL104: This is not the name of an environment variable",
        "32:1 error TL102: Codex does not support `bearer_token`",
        "33:20 error TL103: Expected a mapping, not a list",
    ]
    hints = {problem.span.line: problem.hint for problem in loaded.problems if problem.span}
    assert hints[13] == "did you mean `http_headers`?"
    assert hints[14] == "did you mean `tool_timeout_sec`?"
    assert hints[32] == "name a variable in `bearer_token_env_var`"
    assert "hunter2" not in render(loaded.problems, loaded.text)


def test_variables_that_are_not_set_are_reported_where_they_are_named() -> None:
    text = '[mcp_servers.a]\nurl = "http://x/"\nbearer_token_env_var = "A"\nenv_http_headers = { H = "B", I = \'C\' }\n'
    assert shown(load(text, B="b")) == [
        "3:24 warning TL110: Environment variable `A` is not set",
        "4:35 warning TL110: Environment variable `C` is not set",
    ]
    assert [problem.hint for problem in load(text, A="a", B="b").problems] == ["set it"]


def test_a_header_from_a_variable_wins_over_a_written_one() -> None:
    text = """
[mcp_servers.a]
url = "http://x/"
http_headers = { authorization = "none", X = "1" }
bearer_token_env_var = "T"
"""
    section = settings_of(load(text, T="t")).sources["a"]
    assert section.headers == {"X": "1", "Authorization": "Bearer t"}  # type: ignore[attr-defined]


def test_seconds_win_over_milliseconds() -> None:
    text = '[mcp_servers.a]\ncommand = "x"\nstartup_timeout_ms = 9000\nstartup_timeout_sec = 3\n'
    assert settings_of(load(text)).sources["a"].start_timeout == 3.0


def test_there_are_no_references() -> None:
    text = "[mcp_servers.a]\ncommand = 'x'\nargs = ['${A}', '$${A}', '${', '$A']\n"
    assert settings_of(load(text, A="1")).sources["a"].args == ("${A}", "$${A}", "${", "$A")  # type: ignore[attr-defined]


def test_servers_may_be_written_in_one_line() -> None:
    text = 'mcp_servers = { a = { command = "x", args = ["y"], kind = 1 }, b = { command = 5 } }'
    assert shown(load(text)) == [
        "1:52 warning TL120: `kind` is for the client and is ignored here",
        "1:80 error TL103: Expected text, not a number",
    ]
    assert codes(load("mcp_servers.a.command = 'x'\nmcp_servers.a.args = []\n")) == []


def test_what_is_wrong_with_the_syntax_has_its_place() -> None:
    assert shown(load('[mcp_servers.a]\ncommand = "x\n'))[0].startswith("2:13 error TL101: The file is not valid TOML")
    assert shown(load("a = 1\na = 2\n"))[0].startswith("2:6 error TL101")
    assert shown(load("a = [1,\n"))[0].startswith("2:1 error TL101")
    loaded = load('[mcp_servers.a.env]\nAPI_KEY = "hunter2\n')
    assert codes(loaded) == ["TL101"]
    assert "hunter2" not in render(loaded.problems, loaded.text)


def test_a_literal_secret_is_reported_at_its_key() -> None:
    loaded = load('[mcp_servers.a]\ncommand = "x"\n[mcp_servers.a.env]\nX = "1"\nAPI_KEY = "hunter2"\n')
    assert shown(loaded) == ["5:1 warning TL121: `API_KEY` holds what looks like a secret written into the file"]
    assert "hunter2" not in render(loaded.problems, loaded.text)
