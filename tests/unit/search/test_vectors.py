from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from tests.support.waiting import until

from trunkline.search.index import vectors as vectors_module
from trunkline.search.index.arrays import np
from trunkline.search.index.encoder import Encoder
from trunkline.search.index.query_encoder import query_vectors
from trunkline.search.index.vector_file import records_of, vectors_of
from trunkline.search.index.vectors import VectorStore

TEXTS = ["github create issue: Opens an issue", "mail send: Sends a message", "files read: Gives back a file"]


class Kept:
    """A store, and what it told."""

    def __init__(self, state_dir: Path | None, **options: Path) -> None:
        self.progress = 0
        self.notes: list[str] = []
        self.store = VectorStore(state_dir, on_progress=self.told, note=self.notes.append, **options)

    def told(self) -> None:
        asyncio.get_running_loop()
        self.progress += 1

    async def all_known(self, texts: list[str]) -> np.ndarray:
        def look() -> bool:
            return bool(self.store.matrix(texts)[1].all())

        await until(look, "all vectors are known")
        return self.store.matrix(texts)[0]


@asynccontextmanager
async def kept(state_dir: Path | None = None, **options: Path) -> AsyncIterator[Kept]:
    kept = Kept(state_dir, **options)
    try:
        yield kept
    finally:
        await kept.store.close()


async def asked(store: VectorStore, text: str):
    answer = asyncio.get_running_loop().create_future()
    store.query(text, answer.set_result)
    return await answer


async def test_before_anything_is_wanted_nothing_is_known():
    async with kept() as here:
        matrix, known = here.store.matrix(TEXTS)
        assert matrix.shape == (3, 384)
        assert not matrix.any()
        assert known.tolist() == [False] * 3


async def test_what_is_wanted_is_known_after_a_while_and_told_on_the_loop():
    async with kept() as here:
        here.store.request(TEXTS[:2])
        await here.all_known(TEXTS[:2])
        matrix, known = here.store.matrix(TEXTS)
        assert known.tolist() == [True, True, False]
        assert np.abs(np.linalg.norm(matrix, axis=1) - [1, 1, 0]).max() < 1e-6
        assert here.progress > 0
        assert here.notes == []
        assert here.store.pending == 0


async def test_a_query_is_near_the_tool_that_it_asks_for():
    async with kept() as here:
        here.store.request(TEXTS)
        matrix = await here.all_known(TEXTS)
        assert int(np.argmax(matrix @ await asked(here.store, "write an e-mail to my boss"))) == 1


async def test_a_second_start_encodes_nothing_and_has_the_same_vectors_bit_for_bit(tmp_path):
    async with kept(tmp_path) as first:
        first.store.request(TEXTS)
        before = await first.all_known(TEXTS)
    async with kept(tmp_path, data=tmp_path / "no encoder") as second:
        second.store.request(TEXTS)
        after = await second.all_known(TEXTS)
        assert second.notes == []
    assert (before == after).all()


async def test_gateways_that_share_a_folder_profit_from_each_other(tmp_path):
    async with kept(tmp_path) as one, kept(tmp_path) as other:
        one.store.request(TEXTS[:2])
        other.store.request(TEXTS[1:])
        await one.all_known(TEXTS[:2])
        await other.all_known(TEXTS[1:])
    async with kept(tmp_path, data=tmp_path / "no encoder") as later:
        later.store.request(TEXTS)
        await later.all_known(TEXTS)


async def test_without_an_encoder_there_is_one_note_and_no_vector(tmp_path):
    async with kept(None, data=tmp_path) as here:
        here.store.request(TEXTS)
        assert await asked(here.store, "anything") is None
        assert await asked(here.store, "anything else") is None
        await until(lambda: not here.store.pending, "the thread gives up")
    assert len(here.notes) == 1
    assert str(tmp_path) in here.notes[0]


async def test_where_nothing_can_be_kept_there_is_a_note_and_the_vectors_are_there(tmp_path):
    (tmp_path / "search").write_text("a file stands in the way")
    async with kept(tmp_path) as here:
        here.store.request(TEXTS)
        await here.all_known(TEXTS)
        await until(lambda: here.notes, "it is noted")
    assert "search" in here.notes[0]


async def test_a_damaged_file_is_replaced_without_a_word(tmp_path):
    async with kept(tmp_path) as first:
        first.store.request(TEXTS)
        await first.all_known(TEXTS)
    path = tmp_path / "search" / "vectors"
    path.write_bytes(path.read_bytes()[:-100])
    async with kept(tmp_path) as second:
        second.store.request(TEXTS)
        await second.all_known(TEXTS)
    assert second.notes == []
    async with kept(tmp_path, data=tmp_path / "no encoder") as third:
        third.store.request(TEXTS)
        await third.all_known(TEXTS)


async def test_hostile_texts_are_known_like_others(tmp_path):
    texts = ["", "\x00", "\ud800", "😀", "a" * 1_000_000, "word " * 200_000]
    async with kept(tmp_path) as here:
        here.store.request(texts)
        matrix = await here.all_known(texts)
        lengths = np.linalg.norm(matrix, axis=1)
        assert np.abs(lengths - [0, 0, 1, 1, 1, 1]).max() < 1e-6
        assert [vector is not None for vector in [await asked(here.store, text) for text in texts]] == [True] * 6
    assert here.notes == []


async def test_memory_is_bounded_and_keeps_what_was_wanted_last(monkeypatch):
    monkeypatch.setattr(vectors_module, "_MOST_IN_MEMORY", 2)
    async with kept() as here:
        for text in TEXTS[:2]:
            here.store.request([text])
            await here.all_known([text])
        here.store.request(TEXTS[:1])
        here.store.request(TEXTS[2:])
        await here.all_known(TEXTS[2:])
        assert here.store.matrix(TEXTS)[1].tolist() == [True, False, True]


async def test_closing_in_the_middle_ends_the_threads_and_later_wishes_are_not_met():
    store = VectorStore(None)
    store.request([f"tool {number}: " + "does one thing after the other " * 20 for number in range(2000)])
    await store.close()
    store.request(TEXTS)
    assert await asked(store, "anything") is None
    await store.close()
    assert not store.matrix(TEXTS)[1].any()


async def test_vectors_are_those_of_the_encoder():
    encoder = Encoder()
    async with kept() as here:
        here.store.request(TEXTS)
        matrix = await here.all_known(TEXTS)
        assert (await asked(here.store, "read") == query_vectors(encoder.encode, "read")).all()
    assert (vectors_of(records_of(encoder.encode(TEXTS))) == matrix).all()
