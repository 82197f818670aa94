"""The folder of a plugin's socket. What it has in common with others is tested with `private_folder`."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from trunkline.core.errors import SOURCE_START_FAILED, GatewayError
from trunkline.sources.plugin.process import PREFIX, SocketFolder


def test_it_is_made_and_goes() -> None:
    folder = SocketFolder("p")
    assert folder.path.name.startswith(PREFIX)
    folder.remove()
    assert not folder.path.exists()


def test_where_there_can_be_none_the_plugin_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "no"))
    monkeypatch.setattr("trunkline.runtime.temporary_folders._LONGEST_PARENT", 1000)
    with pytest.raises(GatewayError) as caught:
        SocketFolder("p")
    assert (caught.value.problem.code, caught.value.problem.source) == (SOURCE_START_FAILED, "p")
