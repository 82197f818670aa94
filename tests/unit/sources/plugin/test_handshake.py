"""The line by which a plugin says where it listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from trunkline.sources.plugin.process import (
    Handshake,
    HandshakeRefused,
    looks_like_handshake,
    read_handshake,
    target_of,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "private").mkdir(mode=0o700)
    return tmp_path / "private"


@pytest.fixture
def listening() -> Iterator[list[socket.socket]]:
    made: list[socket.socket] = []
    yield made
    for sock in made:
        sock.close()


def listen(path: Path, made: list[socket.socket], mode: int = 0o700) -> Path:
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(str(path))
    made.append(sock)
    path.chmod(mode)
    return path


@pytest.mark.parametrize(
    "line", [b"1|1|unix|/a|grpc|", b"1|1|unix|/a|grpc", b"1|1|unix|/a|grpc||true\r", b" 1|1|unix|/a|grpc|"]
)
def test_good_lines_are_read(line: bytes) -> None:
    assert looks_like_handshake(line)
    assert read_handshake(line) == Handshake("unix", "/a")


@pytest.mark.parametrize("line", [b"Welcome", b"a|b|c|d", b"1|2", b"| | | |", b"12:30 | up | and | running"])
def test_other_lines_are_not_taken_for_it(line: bytes) -> None:
    assert not looks_like_handshake(line)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"2|1|unix|/a|grpc|", "version `2`"),
        (b"1|2|unix|/a|grpc|", "version `2` of the plugin protocol"),
        (b"1||unix|/a|grpc|", "version `` of the plugin protocol"),
        (b"1|1|unix|/a", "`netrpc`"),
        (b"1|1|unix|/a|netrpc|", "`netrpc`"),
        (b"1|1|unix|/a|grpc|MIIC", "certificate"),
        (b"1|1|unix|\xff\xfe|http|", "`http`"),
    ],
)
def test_what_is_refused_is_named(line: bytes, words: str) -> None:
    with pytest.raises(HandshakeRefused, match=words):
        read_handshake(line)


@pytest.mark.parametrize(
    ("address", "target"),
    [("127.0.0.1:1234", "127.0.0.1:1234"), ("127.9.9.9:1", "127.9.9.9:1"), ("[::1]:65535", "[::1]:65535")],
)
def test_loopback_is_dialled(folder: Path, address: str, target: str) -> None:
    assert target_of(Handshake("tcp", address), folder) == target


@pytest.mark.parametrize(
    "address",
    [
        *("0.0.0.0:1", "10.0.0.1:80", "[::]:1", "localhost:80", "example.com:80"),
        *("127.0.0.1", "127.0.0.1:0", "127.0.0.1:99999", "127.0.0.1:x", "127.0.0.1:\u0661", ":80", ""),
    ],
)
def test_other_addresses_are_refused(folder: Path, address: str) -> None:
    with pytest.raises(HandshakeRefused):
        target_of(Handshake("tcp", address), folder)


def test_a_socket_in_the_private_folder_is_dialled(folder: Path, listening: list[socket.socket]) -> None:
    path = listen(folder / "s", listening, 0o777)
    assert target_of(Handshake("unix", str(path)), folder) == f"unix:{path}"


def test_a_socket_elsewhere_is_dialled_if_it_is_ours_alone(
    tmp_path: Path, folder: Path, listening: list[socket.socket]
) -> None:
    path = listen(tmp_path / "s", listening, 0o755)
    assert target_of(Handshake("unix", str(path)), folder) == f"unix:{path}"
    path.chmod(0o777)
    with pytest.raises(HandshakeRefused, match="other users"):
        target_of(Handshake("unix", str(path)), folder)


def test_a_socket_where_others_could_put_another_is_refused(
    tmp_path: Path, folder: Path, listening: list[socket.socket]
) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    path = listen(shared / "s", listening)
    shared.chmod(0o777)
    with pytest.raises(HandshakeRefused, match="replace"):
        target_of(Handshake("unix", str(path)), folder)
    shared.chmod(0o1777)  # like /tmp, where everybody may only touch what is theirs
    assert target_of(Handshake("unix", str(path)), folder)


def test_a_link_in_the_private_folder_leads_to_what_is_judged(
    tmp_path: Path, folder: Path, listening: list[socket.socket]
) -> None:
    path = listen(tmp_path / "s", listening, 0o777)
    (folder / "link").symlink_to(path)
    with pytest.raises(HandshakeRefused, match="other users"):
        target_of(Handshake("unix", str(folder / "link")), folder)


def test_what_is_no_socket_is_refused(tmp_path: Path, folder: Path) -> None:
    (folder / "file").write_text("")
    for address in (
        str(folder / "file"),
        str(folder / "nothing"),
        "relative",
        "@abstract",
        "\0abstract",
        "",
        str(folder),
    ):
        with pytest.raises(HandshakeRefused):
            target_of(Handshake("unix", address), folder)
    os.mkfifo(tmp_path / "fifo")
    with pytest.raises(HandshakeRefused, match="not a socket"):
        target_of(Handshake("unix", str(tmp_path / "fifo")), folder)


def test_a_socket_is_dialled_by_the_very_name_that_was_judged(folder: Path, listening: list[socket.socket]) -> None:
    path = listen(folder / "s%41#?", listening)
    assert target_of(Handshake("unix", str(path)), folder) == f"unix:{folder}/s%2541%23%3F"


def test_links_in_a_circle_are_no_socket(folder: Path) -> None:
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    with pytest.raises(HandshakeRefused, match="is not there"):
        target_of(Handshake("unix", str(folder / "a")), folder)


@pytest.mark.parametrize(
    "line", ["9" * 60_000 + "|1|unix|s|grpc|", "1|" + "9" * 60_000 + "|unix|s|grpc|", "1|1|unix|s|" + "g" * 60_000]
)
def test_of_a_long_line_only_the_beginning_is_shown(line: str) -> None:
    with pytest.raises(HandshakeRefused) as refused:
        read_handshake(line.encode())
    assert len(str(refused.value)) < 1000


@pytest.mark.parametrize(
    ("network", "address"),
    [("unix", "/" + "a" * 60_000), ("tcp", "[fe80::1%" + "a" * 60_000 + "]:1"), ("x" * 60_000, "")],
)
def test_of_a_long_address_only_the_beginning_is_shown(folder: Path, network: str, address: str) -> None:
    with pytest.raises(HandshakeRefused) as refused:
        target_of(Handshake(network, address), folder)
    assert len(str(refused.value)) < 1000
