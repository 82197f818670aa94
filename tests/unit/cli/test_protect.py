from __future__ import annotations

import json
import os
from pathlib import Path

from tests.support.commands import trunkline

from trunkline.sources.builtin.protection.quarantine import FOLDER, Quarantine


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


def test_what_was_taken_while_no_state_could_be_kept_is_listed_and_taken_back(tmp_path: Path) -> None:
    (tmp_path / ".local").write_text("a file in place of a folder")
    root, temporary = tmp_path / "root", tmp_path / "temporary"
    root.mkdir()
    temporary.mkdir()
    tool = {"kind": "builtin", "root": str(root), "sandbox": "off", "tools": {"allow": ["*", "Bash"]}}
    config = tmp_path / "gateway.json"
    config.write_text(json.dumps({"sources": {"files": tool}}))
    env = {"TMPDIR": str(temporary)}
    called = trunkline("call", "Bash", "command=echo theirs > .envrc", "-c", str(config), cwd=tmp_path, env=env)
    [taken] = json.loads(trunkline("protect", "--json", cwd=tmp_path, env=env).stdout)
    assert f"trunkline protect accept {taken['id']}" in called.stdout
    assert not (root / ".envrc").exists()
    assert trunkline("protect", "accept", taken["id"], cwd=tmp_path, env=env).returncode == 0
    assert (root / ".envrc").read_text() == "theirs\n"


def test_a_folder_that_another_has_put_in_place_of_ours_is_not_looked_into(tmp_path: Path) -> None:
    (tmp_path / "root").mkdir()
    (tmp_path / "root/.envrc").write_text("theirs")
    Quarantine(tmp_path / "other" / FOLDER).take(
        str(tmp_path / "root"), str(tmp_path / "root/.envrc"), "new", "somebody"
    )
    (tmp_path / f"trunkline-protected-{os.getuid()}").symlink_to("other")
    assert json.loads(trunkline("protect", "--json", cwd=tmp_path, env={"TMPDIR": str(tmp_path)}).stdout) == []
