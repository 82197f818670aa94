from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

from trunkline.search.index.background_encoder import BackgroundEncoder
from trunkline.search.index.encoder import LazyEncoder
from trunkline.search.index.vector_file import VectorFile, text_key

ENCODER = LazyEncoder()
MANY = [f"tool number {number}: " + "does one thing after the other " * 20 for number in range(2000)]


class Outcome:
    """What the thread reports."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.problems: list[Exception] = []


@contextmanager
def background(
    encoder: LazyEncoder = ENCODER, file: VectorFile | None = None, save_every_s: float = 5.0
) -> Iterator[tuple[BackgroundEncoder, Outcome]]:
    idle = threading.Event()
    idle.set()
    outcome = Outcome()
    thread = BackgroundEncoder(
        encoder,
        file,
        queries_idle=idle,
        arrived=outcome.records.update,
        failed=outcome.problems.append,
        save_every_s=save_every_s,
    )
    try:
        yield thread, outcome
    finally:
        thread.stop()
        wait_until(lambda: not thread.alive, "the thread ends")


def file_in(folder: Path) -> VectorFile:
    return VectorFile(folder, "model")


def test_what_is_encoded_is_kept_before_all_is_done(tmp_path):
    file = file_in(tmp_path / "search")
    with background(file=file, save_every_s=0) as (thread, _):
        thread.request(MANY)
        wait_until(lambda: file.find([text_key(MANY[0])])[0], "the first is kept")
        assert thread.pending > 0


def test_what_is_encoded_is_kept_when_the_end_comes_before_all_is_done(tmp_path):
    file = file_in(tmp_path / "search")
    with background(file=file) as (thread, _):
        thread.request(MANY)
        wait_until(lambda: thread.pending < 2000, "it begins")
    assert file.find([text_key(MANY[0])])[0]


def test_what_is_wanted_later_comes_first():
    with background() as (thread, outcome):
        thread.request(MANY)
        thread.request(["read a file"])
        wait_until(lambda: "read a file" in outcome.records, "it arrives")
        assert thread.pending > 0


def test_what_is_dropped_is_not_encoded_and_can_be_wanted_again():
    with background() as (thread, outcome):
        thread.drop()
        assert not thread.alive, "nobody needed it so far"
        thread.request(MANY)
        thread.request(["read a file"])
        thread.drop()
        wait_until(lambda: thread.pending == 0, "nothing is wanted")
        thread.request(["send a mail", MANY[-1]])
        wait_until(lambda: {"send a mail", MANY[-1]} <= outcome.records.keys(), "they arrive")
        assert thread.pending == 0
    assert len(outcome.records) < 1000
