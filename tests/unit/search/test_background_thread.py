from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_until

from trunkline.search.background_thread import BackgroundThread
from trunkline.search.encoder_loading import LazyEncoder
from trunkline.search.vector_file import VectorFile
from trunkline.search.vector_records import records_of, text_key

ENCODER = LazyEncoder()


class Outcome:
    """What the thread reports."""

    def __init__(self) -> None:
        self.records: dict[str, bytes] = {}
        self.problems: list[Exception] = []


@contextmanager
def background(
    encoder: LazyEncoder = ENCODER, file: VectorFile | None = None, save_every_s: float = 5.0
) -> Iterator[tuple[BackgroundThread, Outcome]]:
    idle = threading.Event()
    idle.set()
    outcome = Outcome()
    thread = BackgroundThread(
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


def test_what_is_wanted_arrives_as_the_encoder_makes_it():
    texts = ["read a file", "send a mail", ""]
    with background() as (thread, outcome):
        thread.want(texts)
        wait_until(lambda: len(outcome.records) == 3, "all arrive")
        assert thread.wanted == 0
    assert [outcome.records[text] for text in texts] == records_of(ENCODER.get().encode(texts))


def test_what_the_file_has_is_not_encoded(tmp_path):
    with background(file=file_in(tmp_path / "search")) as (thread, outcome):
        thread.want(["read a file", "send a mail"])
        wait_until(lambda: len(outcome.records) == 2, "all arrive")
    with background(LazyEncoder(tmp_path / "no encoder"), file_in(tmp_path / "search")) as (thread, again):
        thread.want(["send a mail", "read a file"])
        wait_until(lambda: len(again.records) == 2, "all arrive")
    assert again.records == outcome.records
    assert again.problems == []


def test_what_is_encoded_is_kept_before_all_is_done(tmp_path):
    file = file_in(tmp_path / "search")
    texts = [f"tool number {number}: " + "does one thing after the other " * 20 for number in range(2000)]
    with background(file=file, save_every_s=0) as (thread, _):
        thread.want(texts)
        wait_until(lambda: file.find([text_key(texts[0])])[0], "the first is kept")
        assert thread.wanted > 0


def test_what_is_encoded_is_kept_when_the_end_comes_before_all_is_done(tmp_path):
    file = file_in(tmp_path / "search")
    texts = [f"tool number {number}: " + "does one thing after the other " * 20 for number in range(2000)]
    with background(file=file) as (thread, _):
        thread.want(texts)
        wait_until(lambda: thread.wanted < 2000, "it begins")
    assert file.find([text_key(texts[0])])[0]


def test_what_is_wanted_later_comes_first():
    older = [f"tool number {number}: " + "does one thing after the other " * 20 for number in range(2000)]
    with background() as (thread, outcome):
        thread.want(older)
        thread.want(["read a file"])
        wait_until(lambda: "read a file" in outcome.records, "it arrives")
        assert thread.wanted > 0


def test_without_an_encoder_it_says_so_once_and_wants_nothing_more(tmp_path):
    with background(LazyEncoder(tmp_path)) as (thread, outcome):
        thread.want(["read a file"])
        wait_until(lambda: not thread.alive, "the thread gives up")
        thread.want(["send a mail"])
        assert thread.wanted == 0
    assert [str(tmp_path) in str(problem) for problem in outcome.problems] == [True]


def test_where_nothing_can_be_kept_the_work_goes_on_in_memory(tmp_path):
    (tmp_path / "search").write_text("a file stands in the way")
    with background(file=file_in(tmp_path / "search")) as (thread, outcome):
        thread.want(["read a file"])
        wait_until(lambda: outcome.records, "it arrives")
    assert [type(problem) for problem in outcome.problems] == [FileExistsError]


def test_a_thread_that_nobody_needed_ends_without_having_begun():
    with background() as (thread, _):
        assert not thread.alive


def test_what_is_dropped_is_not_encoded_and_can_be_wanted_again():
    texts = [f"tool number {number}: " + "does one thing after the other " * 20 for number in range(2000)]
    with background() as (thread, outcome):
        thread.want(texts)
        thread.want(["read a file"])
        thread.drop()
        wait_until(lambda: thread.wanted == 0, "nothing is wanted")
        thread.want(["send a mail", texts[-1]])
        wait_until(lambda: {"send a mail", texts[-1]} <= outcome.records.keys(), "they arrive")
        assert thread.wanted == 0
    assert len(outcome.records) < 100


def test_dropping_before_anything_was_wanted_starts_no_thread():
    with background() as (thread, _):
        thread.drop()
        assert not thread.alive
        thread.want(["read a file"])
        wait_until(lambda: thread.wanted == 0, "it arrives")
