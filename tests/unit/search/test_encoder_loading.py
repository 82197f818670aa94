from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from trunkline.search.index.encoder import LazyEncoder


def test_threads_that_ask_at_once_get_the_same_encoder():
    lazy = LazyEncoder()
    with ThreadPoolExecutor(4) as threads:
        encoders = {id(encoder) for encoder in threads.map(lambda _: lazy.get(), range(4))}
    assert len(encoders) == 1
