from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.commands import trunkline

from trunkline.links.protection.quarantine import FOLDER, Quarantine


def test_names_that_are_no_text_or_would_be_obeyed_are_listed_and_taken_back(tmp_path: Path) -> None:
    root = tmp_path / "root"
    folder = root / os.fsdecode(b"a\xff\x1b[31m")
    folder.mkdir(parents=True)
    (folder / ".mcp.json").write_text("theirs")
    store = Quarantine(tmp_path / ".local/state/trunkline" / FOLDER)
    taken = store.take(str(root), str(folder / ".mcp.json"), "new", "somebody")
    listed = trunkline("protect", cwd=tmp_path)
    assert taken.id in listed.stdout
    assert "\x1b" not in listed.stdout
    [entry] = json.loads(trunkline("protect", "--json", cwd=tmp_path).stdout)
    assert entry["path"] == taken.path
    assert Path(entry["file"]).read_text() == "theirs"
    assert trunkline("protect", "accept", cwd=tmp_path).returncode == 0
    assert (folder / ".mcp.json").read_text() == "theirs"


def test_a_file_that_lies_here_does_not_say_where_to_look(tmp_path: Path) -> None:
    store = Quarantine(tmp_path / "planted" / FOLDER)
    (tmp_path / "root").mkdir()
    (tmp_path / "root/.mcp.json").write_text("theirs")
    store.take(str(tmp_path / "root"), str(tmp_path / "root/.mcp.json"), "new", "somebody")
    config = tmp_path / "trunkline.yaml"
    config.write_text(f"gateway: {{state_dir: {tmp_path}/planted}}\n")
    assert json.loads(trunkline("protect", "--json", cwd=tmp_path).stdout) == []
    assert len(json.loads(trunkline("protect", "--json", "-c", str(config), cwd=tmp_path).stdout)) == 1
