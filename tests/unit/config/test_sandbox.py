"""The key `sandbox`: one word, or a section, and what holds where several say something."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.config_files import codes, load_text, settings_of

from trunkline.config.sandbox import SandboxSettings, strictest_sandbox
from trunkline.core.errors import BAD_VALUE, LITERAL_SECRET, UNKNOWN_KEY, WRONG_TYPE

ENVIRON = {"HOME": "/home/me", "S": "hunter-2-hunter"}


def load(written: str, folder: Path | None = None) -> Any:
    text = f"sources:\n  local: {{kind: builtin, root: ., sandbox: {written}}}\n"
    return load_text(text, environ=ENVIRON, folder=folder)


def read(written: str, folder: Path | None = None) -> SandboxSettings:
    section: Any = settings_of(load(written, folder)).sources["local"]
    return section.sandbox


@pytest.mark.parametrize("mode", ["auto", "required", "off", '"off"'])
def test_one_word_is_the_mode_and_the_rest_is_as_usual(mode: str) -> None:
    word = mode.strip('"')
    assert read(mode) == read(f"{{mode: {mode}}}") == SandboxSettings(mode=word)


def test_by_itself_there_is_no_way_to_this_machine_s_network() -> None:
    assert (read("{}").mode, read("{}").network) == ("auto", "loopback")


def test_a_section_says_everything(tmp_path: Path) -> None:
    parsed = read("{mode: required, network: on, folders: {~/.cache: rw, data: ro, /srv: ro}, env: {CI: 1}}", tmp_path)
    assert (parsed.mode, parsed.network, parsed.env) == ("required", "on", {"CI": "1"})
    assert parsed.folders == {Path("/home/me/.cache"): "rw", tmp_path / "data": "ro", Path("/srv"): "ro"}
    assert read("{network: off}").network == "off"


@pytest.mark.parametrize(
    ("written", "code"),
    [
        ("maybe", BAD_VALUE),
        ("true", WRONG_TYPE),
        ("[auto]", WRONG_TYPE),
        ("{mode: always}", BAD_VALUE),
        ("{network: host}", BAD_VALUE),
        ("{net: off}", UNKNOWN_KEY),
        ("{folders: [/srv]}", WRONG_TYPE),
        ("{folders: {/srv: rx}}", BAD_VALUE),
        ("{folders: {/: ro}}", BAD_VALUE),
        ("{folders: {/proc/1: ro}}", BAD_VALUE),
        ("{env: {A=B: c}}", BAD_VALUE),
    ],
)
def test_what_cannot_be_used_is_said(written: str, code: Any) -> None:
    assert codes(load(written)) == [code.id]


@pytest.mark.law
def test_a_secret_in_its_variables_is_one() -> None:
    settings = settings_of(load('{env: {API_TOKEN: "${S}"}}'))
    assert ENVIRON["S"] in settings.secrets()
    assert ENVIRON["S"] not in repr(settings)
    assert codes(load("{env: {API_TOKEN: abcdefgh12345678}}")) == [LITERAL_SECRET.id]


def test_where_several_are_said_the_strictest_of_each_holds() -> None:
    lax = SandboxSettings(
        mode="required", network="on", folders={Path("/a"): "rw", Path("/b"): "ro"}, env={"A": "1", "B": "2"}
    )
    strict = SandboxSettings(mode="auto", network="loopback", folders={Path("/a"): "ro"}, env={"A": "1", "B": "3"})
    both = SandboxSettings(mode="required", network="loopback", folders={Path("/a"): "ro"}, env={"A": "1"})
    assert strictest_sandbox([lax, strict]) == strictest_sandbox([strict, lax]) == both
    assert strictest_sandbox([lax]) == lax
    assert strictest_sandbox([]) == SandboxSettings()
