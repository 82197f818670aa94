"""Gemini CLI's settings."""

from __future__ import annotations

from tests.support.client_files import load_named, shown
from tests.support.config_files import settings_of


def load(text: str, **environ: str):
    return load_named(".gemini/settings.json", text, environ=environ)


def server(text: str) -> str:
    return f'{{"mcpServers": {{"a": {{{text}}}}}}}'


def test_references_as_in_a_shell() -> None:
    written = '"$A", "x${A}y", "$A$A", "$B_", "$5", "$lower", "$$A", "${a b}", "${N:-d}"'
    loaded = load(server(f'"command": "x", "args": [{written}]'), A="1", B_="2")
    assert settings_of(loaded).sources["a"].args == (  # type: ignore[attr-defined]
        *("1", "x1y", "11", "2", "$5", "$lower", "$1", "${a b}", "d"),
    )


def test_variables_that_are_not_set_are_reported() -> None:
    loaded = load(server('"url": "http://x/", "headers": {"A": "Bearer $TOKEN", "B": "${OTHER}"}'))
    assert shown(loaded) == [
        "1:60 warning TL110: Environment variable `TOKEN` is not set",
        "1:82 warning TL110: Environment variable `OTHER` is not set",
    ]
    assert {problem.hint for problem in loaded.problems} == {"set it"}


def test_which_servers_are_used() -> None:
    servers = '"mcpServers": {"a": {"command": "x"}, "b": {"command": "x", "disabled": false}, "c": {"command": "x"}}'
    for choice, used in (
        ("{}", "abc"),
        ('{"excluded": ["a", "z"]}', "bc"),
        ('{"allowed": ["a", "b"]}', "ab"),
        ('{"allowed": ["a", "b"], "excluded": ["b"]}', "a"),
        ('{"allowed": []}', ""),
        ("5", "abc"),
    ):
        sources = settings_of(load(f'{{"mcp": {choice}, {servers}}}')).sources
        assert "".join(name for name, section in sources.items() if section.enabled) == used, choice


def test_mistakes_have_their_places() -> None:
    text = """{
  // comments are fine
  "mcp": {"excluded": ["odd"]},
  "mcpServers": {
    "slip": {"command": "x", "includeTool": []},
    "both": {"url": "http://x/sse", "httpUrl": "http://x/mcp"},
    "short": {"httpUrl": "http://x/", "timeout": 30},
    "odd": 5
  }
}"""
    assert shown(load(text)) == [
        "5:30 error TL102: Unknown key `includeTool`",
        "6:37 error TL113: `httpUrl` and `url` mean the same",
        "7:50 warning TL104: `timeout` is in milliseconds here: this is 0.03 seconds",
        "8:12 error TL103: Expected a mapping, not a number",
    ]
