from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from trunkline.search.encoder import EncoderUnavailable
from trunkline.search.encoder_loading import LazyEncoder


def test_threads_that_ask_at_once_get_the_same_encoder():
    lazy = LazyEncoder()
    with ThreadPoolExecutor(4) as threads:
        encoders = {id(encoder) for encoder in threads.map(lambda _: lazy.get(), range(4))}
    assert len(encoders) == 1


def test_data_that_is_not_there_is_looked_for_once(tmp_path):
    lazy = LazyEncoder(tmp_path)
    problems = []
    for _ in range(2):
        with pytest.raises(EncoderUnavailable) as caught:
            lazy.get()
        problems.append(caught.value)
    assert problems[0] is problems[1]
