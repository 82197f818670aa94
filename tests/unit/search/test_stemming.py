from __future__ import annotations

import pytest

from trunkline.search.index.stemming import stem


@pytest.mark.parametrize(
    "forms",
    [
        "issue issues issued issuing",
        "create creates created creating creation",
        "repository repositories",
        "file files filed filing",
        "stop stops stopped stopping",
        "translate translation translations translating translator",
        "analyze analyzing analysis analyses",
        "generate generation generator",
        "happy happiness",
        "agree agreed agreeing",
    ],
)
def test_forms_of_a_word_have_one_stem(forms: str) -> None:
    assert len({stem(form) for form in forms.split()}) == 1


def test_different_words_stay_apart() -> None:
    words = ["weather", "whether", "message", "messenger", "flight", "light", "mail", "mall", "sky", "ski"]
    assert len({stem(word) for word in words}) == len(words)


@pytest.mark.parametrize("word", ["", "a", "db", "v2", "été", "天气", "x" * 5000, "s", "ss", "ing", "eed", "yyy"])
def test_odd_words_do_no_harm(word: str) -> None:
    assert len(stem(word)) <= len(word)


def test_words_of_the_published_sample() -> None:
    sample = {"caresses": "caress", "ponies": "poni", "motoring": "motor", "conflated": "conflat", "hissing": "hiss"}
    sample |= {"relational": "relat", "conditional": "condit", "radically": "radic", "formalize": "formal"}
    sample |= {"revival": "reviv", "adjustable": "adjust", "effective": "effect", "controll": "control", "rate": "rate"}
    assert {word: stem(word) for word in sample} == sample
