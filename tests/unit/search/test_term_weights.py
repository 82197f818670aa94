from __future__ import annotations

from itertools import pairwise

import pytest

from trunkline.search.index.documents import Document, saturated, server_terms, term_weights, term_weights_by_field


def document(**fields: object) -> Document:
    plain = {
        "server": "",
        "name": "",
        "shown": "",
        "title": "",
        "description": "",
        "parameters": (),
        "parameter_texts": (),
    }
    return Document(**{**plain, **fields})  # pyright: ignore[reportArgumentType]


def strength(term: str, **fields: object) -> float:
    made = document(**fields)
    return term_weights(made, server_terms(made.server, made.server_text)).get(term, 0.0)


def test_the_place_of_a_word_decides_what_it_says() -> None:
    sentence = "weather " + "word " * 11
    places = (
        strength("weather", name="weather"),
        strength("weather", server="weather"),
        strength("weather", title="weather in some words"),
        strength("weather", description=sentence),
        strength("weather", parameters=("weather", "day", "unit")),
        strength("weather", server_text=sentence),
        strength("weather", parameter_texts=(sentence,)),
    )
    assert list(places) == sorted(places, reverse=True)
    assert strength("weather", tags=("weather",)) > 0
    assert strength("weather", inner_parameters=("weather",)) == strength("weather", parameters=("weather",))


def test_a_word_among_many_says_less() -> None:
    assert strength("rain", description="rain") > strength("rain", description="rain " + "other words " * 50)


def test_a_shown_name_adds_only_what_name_and_server_do_not_say() -> None:
    assert strength("issu", name="issue", shown="issue") == strength("issu", name="issue")
    assert strength("ticket", name="issue", shown="ticket") > 0


def test_fields_add_up() -> None:
    made = document(name="get_rain", description="Rain of a day", parameters=("rain",))
    server = server_terms("", "")
    parts = [found.get("rain", 0.0) for _, found in term_weights_by_field(made, server)]
    assert sum(parts) == pytest.approx(term_weights(made, server)["rain"])
    assert sum(part > 0 for part in parts) == 3


def test_more_of_the_same_adds_ever_less() -> None:
    steps = [saturated(value) for value in (0.0, 1.0, 2.0, 3.0, 1000.0)]
    gains = [later - earlier for earlier, later in pairwise(steps[:-1])]
    assert gains == sorted(gains, reverse=True)
    assert steps[-1] < 2.6
