from __future__ import annotations

import os
from pathlib import Path

import pytest
from tests.support.builtin_tools import Workbench
from tests.support.cases import case

from trunkline.sources.builtin.edit import EditTool
from trunkline.sources.builtin.root import GatewayFiles
from trunkline.sources.builtin.tool import ToolFault
from trunkline.sources.builtin.write import WriteTool
from trunkline.telemetry.redaction import Redactor


@pytest.fixture
def own(tmp_path: Path) -> GatewayFiles:
    return gateway_files(tmp_path)


def gateway_files(tmp_path: Path) -> GatewayFiles:
    files = [str(tmp_path / "trunkline.yaml"), str(tmp_path / ".awf" / "plugins.yaml")]
    return GatewayFiles(folders=[str(tmp_path / "state")], files=files, redact=Redactor(["tok-12345678"]))


def is_file(own: GatewayFiles, path: Path) -> bool:
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return own.is_file(folder, path.name)
    finally:
        os.close(folder)


def test_a_file_is_known_by_its_place_whether_it_exists_or_not(own: GatewayFiles, tmp_path: Path) -> None:
    (tmp_path / ".awf").mkdir()
    (tmp_path / "way").symlink_to(".awf")
    (tmp_path / "sub").mkdir()
    for mine in ("trunkline.yaml", "TRUNKLINE.yaml", ".awf/plugins.yaml", "way/plugins.yaml", ".awf/Plugins.YAML"):
        assert is_file(own, tmp_path / mine)
    for other in ("trunkline.yml", "sub/trunkline.yaml", "plugins.yaml", ".awf/other"):
        assert not is_file(own, tmp_path / other)


def test_a_file_is_known_by_its_other_names(own: GatewayFiles, tmp_path: Path) -> None:
    config = tmp_path / "trunkline.yaml"
    config.write_text("sources: {}")
    (tmp_path / "twin").hardlink_to(config)
    (tmp_path / "copy").write_text("sources: {}")
    assert is_file(own, tmp_path / "twin")
    assert not is_file(own, tmp_path / "copy")


@pytest.mark.law
@pytest.mark.parametrize(
    ("words", "secret"),
    [
        ("sources: {}", False),
        ("token: tok-12345678", True),
        ("token: swordfish", True),
        ("token: abc", True),
        ("{token: abc", True),
        ("url: 'https://host/?q=s3cr3t-1'", True),
        ("env: {MODE: json-lines-v2}", False),
        ("token: ${TOKEN}", False),
        ("token: ${TOKEN:-tok-12345678}", True),
        ("headers: {Authorization: Bearer ${TOKEN}}\nother: word", False),
        ("headers: {Authorization: Bearer abcdefgh}", True),
        ("url: https://me:word@host/", True),
    ],
)
def test_a_file_with_a_secret_written_out_is_not_looked_into(tmp_path: Path, words: str, secret: bool) -> None:
    own = gateway_files(tmp_path)
    config = tmp_path / "trunkline.yaml"
    config.write_text(words)
    (tmp_path / "twin").hardlink_to(config)
    (tmp_path / "copy").write_text(words)
    for name, expected in (("trunkline.yaml", secret), ("twin", secret), ("copy", False)):
        with (tmp_path / name).open("rb") as opened:
            assert own.is_secret(opened.fileno()) is expected
    assert own.hidden() == [str(tmp_path / "state"), *([str(config)] if secret else [])]


@pytest.mark.law
async def test_a_folder_of_the_gateways_own_is_not_made_for_it_either(tmp_path: Path) -> None:
    bench = Workbench(tmp_path, own=GatewayFiles(folders=[str(tmp_path / "state")]))
    (tmp_path / "way").symlink_to(".")
    for path in ("state/gateways/x/servers.json", "state/new", "way/state/new"):
        with case(path=path), pytest.raises(ToolFault, match="belongs to this gateway itself"):
            await bench.use(WriteTool, path=path, content="{}")
        with case(path=path), pytest.raises(ToolFault, match="belongs to this gateway itself"):
            await bench.use(EditTool, path=path, old_string="", new_string="{}")
    assert not [found for found in (tmp_path / "state").rglob("*") if found.is_file()]


def test_a_configuration_that_came_through_a_pipe_holds_up_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert GatewayFiles(files=[str(tmp_path / "pipe"), str(tmp_path)]).hidden() == []
