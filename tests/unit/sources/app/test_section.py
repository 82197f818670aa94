"""The keys of `kind: app`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.gateway import write_config

from trunkline.config.files import ConfigFile
from trunkline.config.load import LoadedConfig, load_config
from trunkline.core.bind_address import BindAddress
from trunkline.sources import section_kinds
from trunkline.sources.app import AppSection


def load(folder: Path, **keys: Any) -> LoadedConfig:
    path = write_config(folder, {"desktop": {"kind": "app", **keys}})
    return load_config(ConfigFile.named(path), environ={}, kinds=section_kinds())


def section(folder: Path, **keys: Any) -> AppSection:
    loaded = load(folder, **keys)
    assert loaded.settings is not None, loaded.problems
    found = loaded.settings.sources["desktop"]
    assert isinstance(found, AppSection)
    return found


def test_nothing_needs_to_be_written(tmp_path: Path) -> None:
    plain = section(tmp_path)
    assert plain.listen == BindAddress("127.0.0.1", 5100)
    assert (plain.token, plain.queue, plain.rate, plain.timeout, plain.grace) == ("", 256, 0, 30.0, 0.0)
    assert plain.prefix == "desktop"


def test_a_slash_makes_it_a_socket_beside_the_file(tmp_path: Path) -> None:
    assert section(tmp_path, listen="./apps.sock").listen == tmp_path / "apps.sock"
    assert section(tmp_path, listen="/run/apps.sock").listen == Path("/run/apps.sock")
    assert section(tmp_path, listen="[::1]:5100").listen == BindAddress("::1", 5100)


def test_beyond_this_machine_a_token_is_needed(tmp_path: Path) -> None:
    refused = load(tmp_path, listen="0.0.0.0:5100")
    assert [problem.code.id for problem in refused.problems] == ["TL112"]
    assert load(tmp_path, listen="0.0.0.0:5100", token="s3cret").settings is not None


@pytest.mark.parametrize(
    "keys",
    [
        {"listen": "5100"},
        {"listen": ""},
        {"queue": 0},
        {"rate": -1},
        {"token": "a\nb"},
        {"token": "x" * 1025},
        {"x": 1},
    ],
)
def test_what_cannot_be_is_refused(tmp_path: Path, keys: dict[str, Any]) -> None:
    assert load(tmp_path, **keys).settings is None


@pytest.mark.law
def test_a_token_does_not_show(tmp_path: Path) -> None:
    assert "s3cret" not in repr(section(tmp_path, token="s3cret"))
