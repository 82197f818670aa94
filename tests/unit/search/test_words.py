from __future__ import annotations

import pytest

from trunkline.search.index.words import (
    MAX_QUERY_TERMS,
    halves,
    joined_words,
    name_terms,
    normalized_name,
    query_words,
    split_name,
    text_terms,
)


@pytest.mark.parametrize(
    "name, expected",
    [
        ("getWeatherByCity", ["get", "weather", "by", "citi", "getweatherbyc"]),
        ("create_issue", ["creat", "issu", "createissu"]),
        ("HTTPServer", ["http", "server", "httpserver"]),
        ("files.read", ["file", "read", "filesread"]),
        ("list", ["list"]),
        ("__", []),
    ],
)
def test_an_identifier_gives_its_parts_and_itself(name: str, expected: list[str]) -> None:
    assert name_terms(name) == expected


def test_function_words_are_left_out_of_running_text_but_not_of_names() -> None:
    assert text_terms("the weather of a city") == ["weather", "citi"]
    assert name_terms("the of") == ["the", "of"]


def test_a_request_is_read_without_what_is_written_around_it() -> None:
    assert query_words("Please, could you tell me what I need: the weather in Rome?") == {
        "weather": "weather",
        "rome": "Rome",
    }


def test_a_request_of_such_words_only_is_read_as_it_is() -> None:
    assert list(query_words("Who are you?")) == ["who", "ar", "you"]


def test_short_forms_mean_the_whole_word() -> None:
    assert name_terms("repos") == name_terms("repository")
    assert list(query_words("my db config")) == list(query_words("my database configuration"))


def test_accents_and_compatible_forms_do_not_matter() -> None:
    assert text_terms("Café ﬁle") == text_terms("cafe\u0301 file") == text_terms("cafe file")


def test_scripts_without_spaces_are_compared_by_pairs_of_characters() -> None:
    assert set(text_terms("天气")) <= set(text_terms("查询天气预报"))


def test_words_written_apart_or_together() -> None:
    assert ("screenshot", "screen shot") in list(joined_words("take a screen shot"))
    assert ("web", "page") in list(halves("webpage"))
    assert list(halves("x" * 1000)) == []


@pytest.mark.parametrize(
    "query", ["x " * 500_000, "x" * 1_000_000, "\x00\x1f\ud800", "\ud800" * 100_000, "🙂" * 9999, ""]
)
def test_any_query_gives_a_bounded_number_of_terms(query: str) -> None:
    assert len(query_words(query)) <= MAX_QUERY_TERMS
    assert len(list(joined_words(query))) <= 2 * MAX_QUERY_TERMS


def test_control_characters_are_spaces() -> None:
    assert list(query_words("weather\x00forecast\x1b")) == ["weather", "forecast"]


def test_a_name_as_one_would_say_it() -> None:
    assert split_name("getWeatherByCity") == "get weather by city"
    assert split_name("create_issue-v2") == "create issue v 2"


def test_spellings_of_a_name_are_squashed_to_the_same() -> None:
    spellings = ("create_issue", "createIssue", "Create issue", "create-issue", "CREATE.ISSUE")
    assert {normalized_name(name) for name in spellings} == {"createissue"}
