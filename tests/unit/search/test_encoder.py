from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from trunkline.search.index.arrays import np
from trunkline.search.index.encoder import DATA, MODEL_ID, Encoder, EncoderUnavailable

SAMPLES = json.loads(Path(__file__).with_name("encoder_samples.json").read_text(encoding="utf-8"))
TEXTS = [sample["text"] for sample in SAMPLES["texts"]]
DATA_DIGESTS = {
    "tool-encoder-1": {
        "vocab.txt": "6ceb42d03079439fb184b423bb2b3563e4774d03d41311b50da861d212be60e1",
        "weights.npz": "c3aa972e669584a76c13a2a58211c1aa50e99a913885fed8359d535dfb179219",
    }
}


@pytest.fixture(scope="module")
def encoder() -> Encoder:
    return Encoder()


def test_vectors_are_those_of_the_model_as_it_was_trained(encoder):
    vectors = encoder.encode(TEXTS)
    begins = np.array([sample["begins"] for sample in SAMPLES["texts"]])
    sums = np.array([sample["sum"] for sample in SAMPLES["texts"]])
    assert np.abs(vectors[:, :8] - begins).max() < 1e-4
    assert np.abs(np.abs(vectors).sum(axis=1) - sums).max() < 2e-3
    assert np.abs(vectors @ vectors.T - np.array(SAMPLES["cosines"])).max() < 1e-4


def test_vectors_are_small_floats_of_length_one(encoder):
    vectors = encoder.encode(TEXTS)
    assert vectors.dtype == np.float32
    assert vectors.shape == (len(TEXTS), 384)
    assert np.abs(np.linalg.norm(vectors, axis=1) - 1).max() < 1e-6


def test_a_text_gets_the_same_vector_bit_for_bit_in_any_company(encoder):
    together = encoder.encode(TEXTS)
    assert all((encoder.encode([text])[0] == together[row]).all() for row, text in enumerate(TEXTS))
    assert (encoder.encode(TEXTS[::-1])[::-1] == together).all()


def test_a_request_is_nearer_to_the_tool_that_serves_it_than_to_others(encoder):
    query, weather, pull_request, screenshot = encoder.encode(TEXTS)[:4]
    assert query @ screenshot > 0.5
    assert query @ screenshot > max(query @ weather, query @ pull_request) + 0.2


@pytest.mark.parametrize("text", ["", "   ", "\x00\x01\n", "\u200b"])
def test_a_text_without_a_word_is_zeros(encoder, text):
    assert not encoder.encode([text]).any()


def test_no_text_at_all_is_no_vector(encoder):
    assert encoder.encode([]).shape == (0, 384)


@pytest.mark.parametrize(
    "text",
    [
        "a" * 1_000_000,
        "read a file " * 100_000,
        "\ud800 \udfff",
        "😀🎉" * 50,
        "\u0301" * 3000 + "x",
        "\U0010ffff" * 9,
        "\x1b[31m",
    ],
)
def test_hostile_texts_get_a_vector_like_any_other(encoder, text):
    assert abs(float(np.linalg.norm(encoder.encode([text])[0])) - 1) < 1e-6


def test_the_model_has_a_new_name_when_its_data_changes():
    digests = {name: hashlib.sha256((DATA / name).read_bytes()).hexdigest() for name in ("vocab.txt", "weights.npz")}
    assert digests == DATA_DIGESTS[MODEL_ID]


def test_the_notice_lies_beside_the_data():
    text = (DATA / "NOTICE").read_text(encoding="utf-8")
    assert "all-MiniLM-L6-v2" in text
    assert "Apache License 2.0" in text


def broken(folder: Path, name: str, data: bytes | None) -> Path:
    """The encoder's data with one file replaced, or left out."""
    for good in DATA.iterdir():
        if good.name != name:
            (folder / good.name).symlink_to(good)
    if data is not None:
        (folder / name).write_bytes(data)
    return folder


@pytest.mark.parametrize(
    "name, data",
    [
        ("weights.npz", None),
        ("weights.npz", b""),
        ("weights.npz", b"PK\x03\x04 not a zip"),
        ("weights.npz", (DATA / "weights.npz").read_bytes()[:100_000]),
        ("vocab.txt", None),
        ("vocab.txt", b"[UNK]\n[CLS]\n[SEP]\n"),
        ("vocab.txt", b"nothing\n"),
        ("vocab.txt", b"\xff\xfe"),
    ],
)
def test_missing_or_damaged_data_is_said_with_the_folder(tmp_path, name, data):
    with pytest.raises(EncoderUnavailable, match=str(tmp_path)):
        Encoder(broken(tmp_path, name, data))
