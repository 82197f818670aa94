from __future__ import annotations

import pytest

from trunkline.core.tool import ToolDefinition
from trunkline.search.index.arrays import np
from trunkline.search.index.documents import document_of, server_terms
from trunkline.search.index.lexical import LexicalIndex, Segment, SegmentBuilder, Vocabulary

NONE = server_terms("", "")


def document(name: str, description: str = ""):
    return document_of(ToolDefinition("", name, b'{"description":"%b"}' % description.encode()), None)


def segment(vocabulary: Vocabulary, *tools: tuple[str, str]) -> Segment:
    builder = SegmentBuilder(vocabulary)
    for name, description in tools:
        builder.add(document(name, description), NONE)
    return builder.finished()


def index_of(*segments: tuple[tuple[str, str], ...]) -> LexicalIndex:
    vocabulary = Vocabulary()
    index = LexicalIndex([segment(vocabulary, *tools) for tools in segments], vocabulary)
    for _ in index.build():
        pass
    return index


TOOLS = (
    ("create_issue", "Open a new issue in a repository"),
    ("take_screenshot", "Screenshot of a web page"),
    ("get_weather", "Weather forecast of a city"),
    ("list_files", "Files of a folder"),
)


def found(index: LexicalIndex, query: str) -> list[str]:
    scores = index.scores(query)
    return [TOOLS[position][0] for position in np.argsort(-scores, kind="stable") if scores[position] > 0]


@pytest.mark.parametrize(
    "query, first",
    [
        ("what will the weather be like?", "get_weather"),
        ("creating issues", "create_issue"),
        ("make a screen shot", "take_screenshot"),
        ("save the webpage", "take_screenshot"),
        ("something about my repo", "create_issue"),
        ("forecasting", "get_weather"),
        ("foldername", "list_files"),
        ("listFiles", "list_files"),
    ],
)
def test_requests_find_tools(query: str, first: str) -> None:
    assert found(index_of(TOOLS), query)[0] == first


def test_words_that_no_tool_has_find_nothing() -> None:
    assert found(index_of(TOOLS), "xqzv blorf") == []
    assert found(index_of(TOOLS), "") == []
    assert found(index_of(()), "weather") == []


def test_a_rare_word_says_more_than_a_common_one() -> None:
    tools = tuple((f"tool{number}", "rare word" if number == 3 else "common word") for number in range(5))
    scores = index_of(tools).scores("common rare")
    assert int(scores.argmax()) == 3


def test_it_does_not_matter_how_tools_are_cut_into_segments() -> None:
    for query in ("weather of a city", "issue", "a page in a folder", "screenshot"):
        whole = index_of(TOOLS).scores(query)
        assert np.allclose(whole, index_of(TOOLS[:1], TOOLS[1:3], (), TOOLS[3:]).scores(query))
        assert np.allclose(whole, index_of(*((tool,) for tool in TOOLS)).scores(query))


def test_an_index_does_not_see_terms_that_came_later() -> None:
    vocabulary = Vocabulary()
    index = LexicalIndex([segment(vocabulary, *TOOLS)], vocabulary)
    for _ in index.build():
        pass
    segment(vocabulary, ("zebra", "Stripes"))
    assert not index.scores("zebra stripes").any()


def test_tools_by_any_spelling_of_their_name() -> None:
    index = index_of(TOOLS)
    for spelling in ("create_issue", "createIssue", "Create issue", "CREATE-ISSUE"):
        assert index.named(spelling).tolist() == [0]
    for other in ("", "!!!", "create", "create_issue_now"):
        assert index.named(other).tolist() == []


def test_an_explanation_adds_up_to_the_score() -> None:
    index = index_of(TOOLS)
    for query in ("new issue in a repository", "issue", "screen shot of the web", "createIssue"):
        position = int(index.scores(query).argmax())
        words = index.explain(query, document(*TOOLS[position]), NONE)
        assert sum(share for _, _, share in words) == pytest.approx(float(index.scores(query)[position]), rel=1e-4)


def test_an_explanation_says_which_word_in_which_field() -> None:
    words = index_of(TOOLS).explain("Issues, please", document(*TOOLS[0]), NONE)
    assert [(word, field) for word, field, _ in words] == [("Issues", "name"), ("Issues", "description")]


def test_words_of_former_tools_do_not_stand_in_for_those_there_are() -> None:
    vocabulary = Vocabulary()
    segment(vocabulary, *((f"rept{letter}", "") for letter in "abcdefghijklmnopqrstuvw"))
    index = LexicalIndex([segment(vocabulary, ("reptxylophone", ""), ("other", ""))], vocabulary)
    for _ in index.build():
        pass
    assert [matched.term for matched in index.matched_terms("rept")] == ["reptxylophon"]


def test_other_forms_of_a_word_are_found_in_languages_whose_endings_nobody_takes_off() -> None:
    index = index_of((("a", "Прогноз погоды для города"), ("b", "Перевести текст")))
    assert index.scores("какая погода в городе")[0] > 0
    assert index.scores("какая погода в городе")[1] == 0
    assert index.scores("переведи")[1] > 0
    assert not index.scores("перед").any()


def test_only_words_that_no_tool_has_are_unsaid() -> None:
    index = index_of(TOOLS)
    assert index.unmatched_weight("creating issues") == index.unmatched_weight("make a screen shot of my repo") == 0
    assert index.unmatched_weight("weather at christmas") == index.unmatched_weight("christmas") > 0
    assert index.unmatched_weight("christmas carols") == 2 * index.unmatched_weight("christmas")
