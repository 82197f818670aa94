from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest
from tests.support.config_files import KINDS

from trunkline.config.registration import load_added_servers, read_added_server, save_added_server
from trunkline.core.bind_address import BindAddress
from trunkline.core.errors import GatewayError

FILE = "servers.json"


def body(name: str, **keys: object) -> bytes:
    return json.dumps({"name": name, **keys}).encode()


def kept(folder: Path) -> list[object]:
    bodies, fault = load_added_servers(folder)
    assert fault == ""
    return [json.loads(each) for each in bodies]


def test_each_server_is_written_down_once_and_struck_out_alone(tmp_path: Path) -> None:
    folder = tmp_path / "gateway"
    assert load_added_servers(folder) == ([], "")
    for name, url in (("a", "1"), ("b", "2"), ("a", "3")):
        save_added_server(folder, name, body(name, url=url))
    assert kept(folder) == [{"name": "b", "url": "2"}, {"name": "a", "url": "3"}]
    assert stat.S_IMODE((folder / FILE).stat().st_mode) == 0o600
    save_added_server(folder, "b", None)
    save_added_server(folder, "never", None)
    assert kept(folder) == [{"name": "a", "url": "3"}]


def test_what_is_not_understood_is_left_where_it_stands(tmp_path: Path) -> None:
    save_added_server(tmp_path, "a", body("a"))
    odd = [{"name": "later", "kind": "of a later version"}, 3, "text", None]
    (tmp_path / FILE).write_text(json.dumps({"servers": odd}))
    save_added_server(tmp_path, "b", body("b"))
    assert kept(tmp_path) == [*odd, {"name": "b"}]


@pytest.mark.parametrize("text", ["", "{", "[]", '{"servers": "many"}', '{"servers": {"a": 1}}', "[" * 100_000])
def test_a_damaged_file_is_told_and_made_anew(tmp_path: Path, text: str) -> None:
    save_added_server(tmp_path, "a", body("a"))
    (tmp_path / FILE).write_text(text)
    bodies, fault = load_added_servers(tmp_path)
    assert bodies == [] and FILE in fault
    save_added_server(tmp_path, "b", body("b"))
    assert kept(tmp_path) == [{"name": "b"}]


def test_no_more_is_kept_than_is_read_again(tmp_path: Path) -> None:
    big = "v" * 1_000_000
    for name in "abcd":
        save_added_server(tmp_path, name, body(name, url=big))
    with pytest.raises(OSError, match="too many"):
        save_added_server(tmp_path, "e", body("e", url=big))
    assert len(kept(tmp_path)) == 4


def test_a_file_that_is_not_used_is_told(tmp_path: Path) -> None:
    save_added_server(tmp_path, "a", body("a"))
    os.chmod(tmp_path / FILE, 0o666)
    bodies, fault = load_added_servers(tmp_path)
    assert bodies == [] and "is not used" in fault


@pytest.mark.parametrize("url", ["${NAME}", "http://x/?${HOME}"])
def test_a_server_with_a_reference_is_refused(url: str) -> None:
    """Nothing of the environment is for it, so it could never start."""
    with pytest.raises(GatewayError) as refused:
        read_added_server(body("a", url=url), KINDS, BindAddress("127.0.0.1", 4747))
    assert "is not set" in refused.value.problem.message
