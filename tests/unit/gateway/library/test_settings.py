"""The configuration of an embedded gateway: a path, a dict or nothing, and every problem at once."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

import pytest
from tests.support.trust import trust

from trunkline import ConfigurationError
from trunkline.gateway.library.embedded import read_config

TEXT = "gateway: {naming: original}\nmcpServers: {a: {command: cat}}\n"


def test_a_file_is_read_by_its_path(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TEXT)
    for spelled in (path, str(path)):
        settings, _ = read_config(spelled)
        assert settings.gateway.naming == "original"
        assert list(settings.sources) == ["a"]


def test_without_a_word_the_usual_places_are_looked_into(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    with pytest.raises(ConfigurationError) as refused:
        read_config(None)
    assert refused.value.code == "TL100"
    (tmp_path / "trunkline.yaml").write_text(TEXT)
    with pytest.raises(ConfigurationError) as refused:
        read_config(None)
    assert refused.value.code == "TL116"
    assert "trunkline trust" in str(refused.value)
    trust(tmp_path)
    assert list(read_config(None)[0].sources) == ["a"]


def test_a_dict_has_the_keys_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WHERE", "there")
    config = {
        "gateway": {"state_dir": tmp_path / "state", "limits": {"call_seconds": 5}},
        "sources": {"b": {"kind": "mcp_stdio", "command": "./run", "args": ("${WHERE}",), "cwd": PurePosixPath("sub")}},
    }
    settings, warnings = read_config(config)
    assert settings.gateway.state_dir == tmp_path / "state"
    assert settings.sources["b"].args == ("there",)
    assert Path(settings.sources["b"].cwd) == tmp_path / "sub"
    assert warnings == ()


def test_secrets_in_a_dict_are_not_warned_about_and_those_in_a_file_are(tmp_path: Path) -> None:
    config = {"mcpServers": {"a": {"command": "cat", "env": {"API_TOKEN": "abcdefghijklmnop"}}}}
    assert read_config(config)[1] == ()
    path = tmp_path / "trunkline.yaml"
    path.write_text("mcpServers: {a: {command: cat, env: {API_TOKEN: abcdefghijklmnop}}}\n")
    assert [problem.code.id for problem in read_config(path)[1]] == ["TL121"]


def test_every_problem_is_told_with_its_place() -> None:
    config = {"gatway": {}, "gateway": {"naming": "odd"}, "sources": {"x": {"kind": "mcp_stdio"}}}
    with pytest.raises(ConfigurationError) as refused:
        read_config(config)
    error = refused.value
    assert [problem.code.id for problem in error.problems] == ["TL102", "TL104", "TL105"]
    assert error.code == "TL102"
    assert "did you mean `gateway`" in error.hint
    assert str(error).startswith("3 errors in the configuration\n")
    assert '"naming": "odd"' in str(error)


@pytest.mark.parametrize("config", [{"gateway": object()}, {"gateway": {"start_wait": float("nan")}}])
def test_a_dict_that_no_file_could_hold_is_refused(config) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_config(config)
    assert refused.value.code == "TL103"


def test_a_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as refused:
        read_config(tmp_path / "nowhere.yaml")
    assert refused.value.code == "TL100"
