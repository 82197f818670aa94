"""A Unix socket to listen on: whose it is, and what it never takes the place of."""

from __future__ import annotations

import os
import socket
import stat
from pathlib import Path

import pytest

from trunkline.core.errors import LISTEN_FAILED, GatewayError
from trunkline.runtime.listener import LISTENING_SOCKETS, UnixSocket

KEY = "sources.desktop.listen"


def refusal(path: Path) -> str:
    with pytest.raises(GatewayError) as refused:
        UnixSocket(path, KEY)
    assert refused.value.problem.code is LISTEN_FAILED
    assert KEY in refused.value.problem.hint
    return refused.value.problem.message


def test_a_socket_that_a_killed_gateway_left_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "gw.sock"
    with socket.socket(socket.AF_UNIX) as old:
        old.bind(str(path))
    replaced = UnixSocket(path, KEY)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path in LISTENING_SOCKETS
    replaced.remove()
    assert not path.exists()
    assert path not in LISTENING_SOCKETS


def test_a_socket_on_which_somebody_listens_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "gw.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen()
        assert "another program is listening there" in refusal(path)
        assert path.is_socket()


@pytest.mark.parametrize("what", ["file", "folder", "pipe", "link"])
def test_what_is_no_socket_is_left_alone(tmp_path: Path, what: str) -> None:
    path = tmp_path / f"{what}.sock"
    if what == "file":
        path.write_text("kept")
    elif what == "folder":
        path.mkdir()
    elif what == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("elsewhere")
    assert "not a socket" in refusal(path)
    assert os.path.lexists(path)


def test_a_path_that_is_too_long_or_nowhere_is_a_problem(tmp_path: Path) -> None:
    assert "too long" in refusal(tmp_path / ("x" * 200))
    assert "No such file" in refusal(tmp_path / "missing" / "gw.sock")


def test_the_socket_of_a_successor_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "gw.sock"
    first = UnixSocket(path, KEY)
    path.unlink()
    second = UnixSocket(path, KEY)
    first.remove()
    assert path.is_socket()
    second.remove()
    assert not path.exists()
