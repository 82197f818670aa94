from __future__ import annotations

import pytest

from trunkline.cli.client.remote import guess_exposed_name

EXPOSED = ["git_log", "git_get__x", "fs_read_file", "a_search", "b_search", "find_tool"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("git.log", "git_log"),
        ("git:log", "git_log"),
        ("git__log", "git_log"),
        ("trunkline.git_log", "git_log"),
        ("log", "git_log"),
        ("git.get__x", "git_get__x"),
        ("git__get__x", "git_get__x"),
        ("fs.read-file", ""),
        ("fs.read.file", "fs_read_file"),
        ("read_file", "fs_read_file"),
        ("search", ""),
        ("trunkline.find_tool", "find_tool"),
        ("nothing", ""),
        ("", ""),
    ],
)
def test_another_spelling_is_understood_where_only_one_tool_can_be_meant(name: str, meant: str) -> None:
    assert guess_exposed_name(name, EXPOSED) == meant
