from __future__ import annotations

from trunkline.search.index.arrays import np
from trunkline.search.index.vector_file import KEY_BYTES, ZERO_RECORD, records_of, text_key, vectors_of


def unit_rows(count: int) -> np.ndarray:
    rows = np.random.default_rng(7).normal(size=(count, 384)).astype(np.float32)
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def test_a_vector_comes_back_nearly_as_it_was_and_of_length_one():
    vectors = unit_rows(50)
    back = vectors_of(records_of(vectors))
    assert back.dtype == np.float32
    assert np.abs(np.linalg.norm(back, axis=1) - 1).max() < 1e-6
    assert np.abs(back @ vectors.T - vectors @ vectors.T).max() < 2e-3


def test_a_record_is_kept_as_it_is_when_it_goes_round_again():
    records = records_of(unit_rows(20))
    assert records_of(vectors_of(records)) == records


def test_zeros_stay_zeros():
    (record,) = records_of(np.zeros((1, 384), np.float32))
    assert not vectors_of([record]).any()
    assert not vectors_of([ZERO_RECORD]).any()


def test_no_records_are_no_vectors():
    assert records_of(np.zeros((0, 384), np.float32)) == []
    assert vectors_of([]).shape == (0, 384)


def test_every_text_has_a_key_of_its_own():
    texts = ["", "a", "A", "a ", "\ud800", "\udfff", "😀", "a" * 1_000_000]
    keys = {text_key(text) for text in texts}
    assert len(keys) == len(texts)
    assert {len(key) for key in keys} == {KEY_BYTES}
