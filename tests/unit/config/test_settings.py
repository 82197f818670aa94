"""What a good file gives."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.support.config_files import load_text, settings_of

pytestmark = pytest.mark.law


def test_settings_know_their_file_and_show_no_secret(tmp_path: Path) -> None:
    text = """
gateway: {token: "${S}"}
mcpServers:
  a: {command: x, args: ["--key=${S}"], env: {TOKEN: "${S}"}}
  b: {url: "https://example.com/?key=${S}", headers: {Authorization: "Bearer ${S}"}}
"""
    settings = settings_of(load_text(text, environ={"S": "hunter2", "HOME": "/h"}, folder=tmp_path))
    assert settings.path == tmp_path / "trunkline.yaml"
    assert "hunter2" not in repr(settings)
