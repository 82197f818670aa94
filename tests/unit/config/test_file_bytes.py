from __future__ import annotations

import os
import socket
import subprocess
import threading
from pathlib import Path

import pytest
from tests.support.commands import environment
from tests.support.gateway import TRUNKLINE
from tests.support.waiting import at_most

from trunkline.config import files
from trunkline.config.files import ConfigFile, read_bytes
from trunkline.config.load import load_config
from trunkline.sources import section_kinds

LIMIT = 1000


@pytest.fixture
def pipe(tmp_path: Path) -> Path:
    os.mkfifo(tmp_path / "pipe.yaml")
    return tmp_path / "pipe.yaml"


def write_later(pipe: Path, *pieces: bytes) -> threading.Thread:
    """Somebody who comes to write once it is read."""

    def write() -> None:
        with pipe.open("wb", buffering=0) as file:
            for piece in pieces:
                file.write(piece)

    writer = threading.Thread(target=write)
    writer.start()
    return writer


def test_a_pipe_nobody_writes_to_is_given_up_with_the_reason(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "UNWRITTEN_S", 0.05)
    loaded = load_config(ConfigFile.named(pipe), environ={}, kinds=section_kinds())
    assert [problem.code.id for problem in loaded.problems] == ["TL100"]
    assert "a pipe that nobody writes to" in loaded.problems[0].message


def test_a_pipe_whose_writer_is_silent_is_given_up_too(pipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SILENT_S", 0.05)
    both = os.open(pipe, os.O_RDWR)
    try:
        with pytest.raises(OSError, match="sends nothing"):
            read_bytes(pipe, LIMIT)
    finally:
        os.close(both)


def test_a_pipe_is_read_to_its_end(pipe: Path) -> None:
    writer = write_later(pipe, b"gateway:", b" {}", b"\n")
    assert read_bytes(pipe, LIMIT) == b"gateway: {}\n"
    writer.join(at_most(15))


def test_what_has_no_end_is_cut(pipe: Path) -> None:
    assert len(read_bytes(Path("/dev/zero"), LIMIT)) == LIMIT + 1
    assert read_bytes(Path("/dev/null"), LIMIT) == b""
    plain = pipe.with_name("plain")
    plain.write_bytes(b"x" * 3 * LIMIT)
    assert len(read_bytes(plain, LIMIT)) == LIMIT + 1


def test_a_socket_is_no_file_to_read(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        with pytest.raises(OSError, match="No such device"):
            read_bytes(tmp_path / "s", LIMIT)


@pytest.mark.needs("bash")
@pytest.mark.parametrize("printed", ["mcpServers: {}", ""])
def test_the_output_of_a_command_can_be_the_configuration(tmp_path: Path, printed: str) -> None:
    command = ["bash", "-c", f'"$0" check -c <(printf "{printed}")', TRUNKLINE]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment(tmp_path), capture_output=True, timeout=at_most(30), check=False
    )
    assert (done.returncode, b"OK, 0 servers" in done.stdout) == (0, True), done.stderr
