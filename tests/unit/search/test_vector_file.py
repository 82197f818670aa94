from __future__ import annotations

import fcntl
import os
import stat
from pathlib import Path

import pytest

from trunkline.search.index.vector_file import ZERO_RECORD, VectorFile, text_key

MODEL = "some-model"


def key(number: int) -> bytes:
    return text_key(f"text {number}")


def record(number: int) -> bytes:
    return number.to_bytes(4, "big") + ZERO_RECORD[4:]


def some(*numbers: int) -> dict[bytes, bytes]:
    return {key(number): record(number) for number in numbers}


def found(file: VectorFile, *numbers: int) -> dict[bytes, bytes]:
    return file.find([key(number) for number in numbers])[0]


@pytest.fixture
def folder(tmp_path) -> Path:
    return tmp_path / "state" / "search"


@pytest.fixture
def file(folder) -> VectorFile:
    return VectorFile(folder, MODEL)


def test_what_is_kept_is_found_by_its_key(file, folder):
    assert file.keep(some(1, 2, 3))
    assert found(VectorFile(folder, MODEL), 1, 3, 4) == some(1, 3)


def test_where_there_is_no_file_nothing_is_found_and_no_folder_is_made(file, folder):
    assert file.find([key(1)]) == ({}, set())
    assert not folder.exists()


def test_more_is_added_to_what_is_there(file):
    file.keep(some(1, 2))
    file.keep({key(2): record(22), **some(3)})
    assert found(file, 1, 2, 3) == {key(1): record(1), key(2): record(22), key(3): record(3)}


def test_gateways_that_share_a_folder_keep_what_the_other_one_has(folder):
    one, other = VectorFile(folder, MODEL), VectorFile(folder, MODEL)
    one.keep(some(1))
    other.keep(some(2))
    one.keep(some(3))
    assert found(one, 1, 2, 3) == found(other, 1, 2, 3) == some(1, 2, 3)


@pytest.mark.law
def test_folder_and_file_are_for_their_owner_only(file, folder):
    file.keep(some(1))
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}


def test_nothing_but_the_file_and_its_lock_is_left(file, folder):
    file.keep(some(1))
    (folder / ".vectors.4242").write_bytes(b"half a fi")
    file.keep(some(2))
    assert sorted(path.name for path in folder.iterdir()) == ["vectors", "vectors.lock"]


def changed(data: bytes, place: int) -> bytes:
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: b"",
        lambda data: b"something else altogether",
        lambda data: data[:-1],
        lambda data: data[: len(data) // 2],
        lambda data: data + b"more",
        lambda data: changed(data, 0),  # what kind of file it is
        lambda data: changed(data, 25),  # the model
        lambda data: changed(data, len(data) // 2),
        lambda data: changed(data, len(data) - 1),
    ],
)
def test_a_damaged_file_counts_as_empty_and_is_replaced(tmp_path, spoil):
    file, path = VectorFile(tmp_path, MODEL), tmp_path / "vectors"
    file.keep(some(1, 2))
    path.write_bytes(spoil(path.read_bytes()))
    assert found(file, 1, 2) == {}
    file.keep(some(3))
    assert found(file, 1, 2, 3) == some(3)


def test_a_file_of_another_model_counts_as_empty_and_is_replaced(file, folder):
    VectorFile(folder, "another-model").keep(some(1))
    assert found(file, 1) == {}
    file.keep(some(2))
    assert found(file, 1, 2) == some(2)


def test_a_file_that_others_may_write_counts_as_empty(file, folder):
    file.keep(some(1))
    (folder / "vectors").chmod(0o666)
    assert found(file, 1) == {}


def test_a_file_larger_than_we_would_write_is_not_read(folder):
    VectorFile(folder, MODEL).keep(some(*range(10)))
    assert found(VectorFile(folder, MODEL, most=9), 1) == {}


def test_what_nobody_wanted_for_longest_is_dropped_first(folder):
    day = 1
    file = VectorFile(folder, MODEL, most=3, today=lambda: day)
    file.keep(some(1, 2))
    day = 2
    file.keep(some(3))
    day = 3
    file.keep({}, wanted={key(1)})
    file.keep(some(4))
    assert found(file, 1, 2, 3, 4) == some(1, 3, 4)


def test_records_not_wanted_today_are_named_so_that_they_can_be_marked(folder):
    day = 1
    file = VectorFile(folder, MODEL, today=lambda: day)
    file.keep(some(1, 2))
    assert file.find([key(1), key(2)])[1] == set()
    day = 2
    assert file.find([key(1), key(9)])[1] == {key(1)}
    file.keep({}, wanted={key(1)})
    assert file.find([key(1), key(2)])[1] == {key(2)}


def test_a_single_write_of_more_than_fits_keeps_the_last(folder):
    file = VectorFile(folder, MODEL, most=2)
    file.keep(some(1, 2, 3))
    assert found(file, 1, 2, 3) == some(2, 3)


def test_while_another_process_writes_nothing_is_lost_but_not_kept_either(file, folder):
    file.keep(some(1))
    lock = os.open(folder / "vectors.lock", os.O_RDWR)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert not file.keep(some(2))
    finally:
        os.close(lock)
    assert file.keep(some(2))
    assert found(file, 1, 2) == some(1, 2)


def test_a_folder_that_cannot_be_made_is_an_error(tmp_path):
    (tmp_path / "state").write_text("a file stands in the way")
    with pytest.raises(OSError, match="state"):
        VectorFile(tmp_path / "state" / "search", MODEL).keep(some(1))


def test_an_empty_file_is_a_file_too(file):
    assert file.keep({}, wanted={key(1)})
    assert file.find([key(1)]) == ({}, set())
