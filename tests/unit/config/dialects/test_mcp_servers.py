"""`mcpServers` in files of clients: references of every sort, and mistakes with their places."""

from __future__ import annotations

import pytest
from tests.support.client_files import load_named, shown
from tests.support.config_files import codes, settings_of, unready

from trunkline.config.problems import render


def load(server: str, **environ: str):
    return load_named(".mcp.json", f'{{"mcpServers": {{"a": {{{server}}}}}}}', environ=environ)


def args_of(*args: str, **environ: str) -> list[str]:
    written = ", ".join(f'"{arg}"' for arg in args)
    section = settings_of(load(f'"command": "x", "args": [{written}]', **environ)).sources["a"]
    return list(section.args)  # type: ignore[attr-defined]


def test_references_of_all_who_write_mcp_servers() -> None:
    assert args_of("${A}", "x${A:-d}y", "${env:A}", "${N:-d}", "${userHome}/x", "a${/}b", A="1") == [
        "1",
        "x1y",
        "1",
        "d",
        "/home/me/x",
        "a/b",
    ]


def test_what_is_no_reference_stays_as_it_is() -> None:
    written = ["$A", "${v%/}", "${", "${a b}", "$$", "${env:a-b}", "{env:A}"]
    assert args_of(*written, A="1") == written


def test_a_dollar_before_a_reference_is_a_dollar() -> None:
    assert args_of("$${A}", "$$${env:A}", A="1") == ["$1", "$$1"]


def test_the_text_of_a_file() -> None:
    text = '{"mcpServers": {"a": {"url": "http://x/", "headers": {"Authorization": "Bearer ${file:t}"}}}}'
    loaded = load_named("mcp_config.json", text, beside={"t": "s3cret\n"})
    assert settings_of(loaded).sources["a"].headers == {"Authorization": "Bearer s3cret"}  # type: ignore[attr-defined]
    assert codes(loaded) == []
    assert shown(load_named("mcp_config.json", text)) == [
        "1:72 warning TL100: The file it refers to cannot be read: it does not exist or is not a regular file"
    ]


def test_variables_that_are_not_set_are_reported_where_they_are_used() -> None:
    text = """{
  "mcpServers": {
    "a": {
      "command": "x",
      "args": ["${ONE}"],
      "env": {"K": "${env:TWO}"}
    },
    "b": {"command": "x", "disabled": true, "args": ["${THREE}"]}
  }
}"""
    loaded = load_named(".mcp.json", text)
    assert shown(loaded) == [
        "5:16 warning TL110: Environment variable `ONE` is not set",
        "6:20 warning TL110: Environment variable `TWO` is not set",
        "8:54 warning TL110: Environment variable `THREE` is not set",
    ]
    assert [problem.hint for problem in loaded.problems] == [
        "set it, or give a default: `${ONE:-…}`",
        "set it",
        "set it, or give a default: `${THREE:-…}`",
    ]
    assert unready(loaded) == {
        "a": ("Environment variable `ONE` is not set", "Environment variable `TWO` is not set"),
        "b": ("Environment variable `THREE` is not set",),
    }


def test_mistakes_have_their_places() -> None:
    text = """{
  "mcpServers": {
    "slip": {"command": "x", "arg": ["a"]},
    "both": {"command": "x", "url": "http://x/"},
    "none": {"args": []},
    "type": {"url": "http://x/", "type": "websocket"},
    "words": {"command": "npx -y server"},
    "list": ["npx"],
    "seconds": {"command": "x", "timeout": 60}
  }
}"""
    assert shown(load_named("claude_desktop_config.json", text)) == [
        "3:30 error TL102: Unknown key `arg`",
        "4:30 error TL113: `command` and `url` are mutually exclusive",
        "5:5 error TL105: Missing key `command` or `url`",
        "6:42 error TL104: `websocket` is not one of `stdio`, `http`, `sse`, `streamable-http`, `streamableHttp`,"
        " `streamable_http`",
        "7:26 error TL104: A command is one program, without its arguments",
        "8:13 error TL103: Expected a mapping, not a list",
        "9:44 warning TL104: `timeout` is in milliseconds here: this is 0.06 seconds",
    ]


def test_our_own_keys_mean_nothing_in_a_clients_file() -> None:
    assert codes(load('"command": "x", "prefix": "p", "grace": 5')) == ["TL120", "TL120"]


def test_comments_only_where_the_client_takes_them() -> None:
    text = '{"mcpServers": {"a": {"command": "x"}, /* why */ }}'
    assert codes(load_named("mcp.json", text)) == []
    for name in (".mcp.json", "claude_desktop_config.json", "mcp_config.json", ".claude.json"):
        assert codes(load_named(name, text)) == ["TL101"]


@pytest.mark.law
def test_secrets_of_a_client_are_shown_nowhere() -> None:
    text = """{
  "mcpServers": {
    "a": {"command": "x", "args": ["--token", "hunter2", "${N}"], "env": {"API_KEY": "hunter2"}, "type": "${file:f}"},
    "b": {"url": "${file:f}", "headers": {"Authorization": "hunter2"}, "envFile": "f", "timeout": "${file:f}"},
    "c": {"command": "x", "envFile": "f", "cwd": "${S}", "disabled": "${S}"}
  }
}"""
    beside = {"f": "TOKEN=hunter2\nBAD=hunter2\0"}
    loaded = load_named(".mcp.json", text, environ={"S": "hunter2\0"}, beside=beside)
    assert len(loaded.problems) >= 8
    assert "hunter2" not in render(loaded.problems, loaded.text) + str(loaded.problems)
