from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.support.waiting import at_most

from trunkline.core.tool import ToolDefinition
from trunkline.search.index.arrays import Flags, Floats, np
from trunkline.search.index.catalog_index import CatalogIndex, Entry, SegmentCache, ServerTools
from trunkline.search.index.lexical import Vocabulary

VERBS = ("create", "list", "delete", "search", "update", "send", "read", "count")
THINGS = ("issue", "file", "message", "invoice", "flight", "photo", "contact", "ticket", "branch", "playlist")


def entry(server: str, name: str, description: str = "", shown: str | None = None, *tags: str) -> Entry:
    definition = {"name": name, "description": description, "inputSchema": {"properties": {"id": {}}}}
    return ToolDefinition(server, name, json.dumps(definition).encode()), shown, tags


def servers(count: int, tools: int, seed: int = 1) -> list[ServerTools]:
    draw = random.Random(seed)
    groups: list[ServerTools] = []
    for number in range(count):
        server = f"server{number}"
        names = [f"{draw.choice(VERBS)}_{draw.choice(THINGS)}_{tool}" for tool in range(tools)]
        made = tuple(entry(server, name, f"To {' or '.join(draw.sample(VERBS, 3))} things") for name in names)
        groups.append(ServerTools(server, f"About {draw.choice(THINGS)}", made))
    return groups


def built(segment_cache: SegmentCache, groups: Sequence[ServerTools]) -> CatalogIndex:
    index = segment_cache.begin(groups)
    while index.step():
        pass
    assert index.ready
    return index


def collection_of(*entries: Entry) -> CatalogIndex:
    return built(SegmentCache(), [ServerTools("s", "", entries)])


def found(index: CatalogIndex, query: str, vector: Floats | None = None) -> list[int]:
    return [hit.position for hit in index.search(query, vector)]


class Meanings:
    """Vectors for texts that have one of some words in them, as far as they are known."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.known_texts: set[str] | None = None
        self.pending: list[str] = []

    def of(self, text: str) -> Floats:
        vector = np.full(len(self.words) + 1, 0.01, dtype=np.float32)
        for place, word in enumerate(self.words):
            vector[place] += word in text
        vector[-1] += not any(word in text for word in self.words)
        return vector / np.float32(np.linalg.norm(vector))

    def matrix(self, texts: Sequence[str]) -> tuple[Floats, Flags]:
        known = np.array([self.known_texts is None or text in self.known_texts for text in texts])
        return np.stack([self.of(text) for text in texts]), known

    def request(self, texts: Sequence[str]) -> None:
        self.pending = list(texts)


# -- searching ------------------------------------------------------------------------------------------------------


def test_the_right_tool_comes_first_through_all_groups() -> None:
    groups = [
        ServerTools("github", "Code hosting", (entry("github", "create_issue", "Open a new issue in a repository"),)),
        ServerTools(
            "meteo", "", (entry("meteo", "get_forecast", "The weather of the next days"), entry("meteo", "ping"))
        ),
    ]
    index = built(SegmentCache(), groups)
    assert len(index) == 3
    assert found(index, "what is the weather like tomorrow?")[0] == 1
    assert found(index, "please file an issue")[0] == 0
    assert index.entry(1)[0].name == "get_forecast"


def test_words_of_server_instructions_tags_and_shown_name_are_found() -> None:
    group = ServerTools("acme", "Everything about aquariums", (entry("acme", "do_it", "", "fishtank", "animals"),))
    other = ServerTools("other", "", (entry("other", "another"),))
    index = built(SegmentCache(), [other, group])
    for query in ("aquarium", "animal", "fishtank", "acme"):
        assert found(index, query) == [1]


@pytest.mark.parametrize("query", ["files.read", "read", "files__read", "Read", " files.read ", "filesRead"])
def test_a_tool_that_is_named_comes_first(query: str) -> None:
    others = tuple(entry("other", f"read_all_{number}", "read read read files files") for number in range(5))
    index = built(
        SegmentCache(), [ServerTools("other", "", others), ServerTools("files", "", (entry("files", "read"),))]
    )
    first = index.search(query, None)[0]
    assert (first.position, first.named) == (5, True)


def test_of_namesakes_the_one_that_clients_call_so_comes_first() -> None:
    groups = [
        ServerTools(server, "", (entry(server, "search", "", shown),))
        for server, shown in (("a", "a__search"), ("b", "search"))
    ]
    index = built(SegmentCache(), groups)
    assert found(index, "search") == [1, 0]
    assert found(index, "a.search")[0] == 0


def test_other_spellings_of_a_tool_name_it_too() -> None:
    tool, shown, tags = entry("s", "plain")
    index = collection_of(entry("s", "x"), (replace(tool, aliases=("my.spelling",)), shown, tags))
    assert index.search("my.spelling", None)[0].named


def test_nothing_is_found_by_words_that_mean_nothing() -> None:
    index = built(SegmentCache(), servers(3, 10))
    for query in ("xqzv blorf", "", "   ", "!?", "\x00"):
        assert found(index, query) == []


def test_only_positions_that_were_asked_for() -> None:
    index = built(SegmentCache(), servers(3, 10))
    everything = found(index, "create issue or list files")
    hits = index.search("create issue or list files", None, among=everything[::2])
    assert [hit.position for hit in hits] == everything[::2]
    assert index.search("create", None, among=()) == []


def test_a_limit_cuts_the_end_off() -> None:
    index = built(SegmentCache(), servers(3, 50))
    everything = index.search("create list delete things", None, limit=1000)
    assert index.search("create list delete things", None, limit=7) == everything[:7]


def test_an_empty_catalog_finds_nothing() -> None:
    assert found(built(SegmentCache(), []), "anything") == []
    assert found(built(SegmentCache(), [ServerTools("s", "text", ())]), "text") == []


def test_a_search_before_the_last_step_finishes_the_index() -> None:
    groups = servers(4, 100)
    assert found(SegmentCache().begin(groups), "list invoices") == found(built(SegmentCache(), groups), "list invoices")


@pytest.mark.parametrize(
    "query", ["issue " * 200_000, "i" * 1_000_000, "issue\ud800\x00\x1f\x7f", "\u202eissue " * 50_000, "天" * 1_000_000]
)
def test_any_query_is_answered(query: str) -> None:
    index = built(SegmentCache(), servers(2, 20))
    for hit in index.search(query, None)[:1]:
        index.explain(query, hit)


def test_any_definition_is_indexed() -> None:
    definitions = (
        b"",
        b"\xff",
        b"[]",
        b"{" * 100_000,
        b'{"description":"%b"}' % (b"word " * 200_000),
        b'{"inputSchema":%b}' % (b'{"properties":{"a":' * 300 + b"{}" + b"}}" * 300),
        b'{"inputSchema":{"properties":{%b}}}' % b",".join(b'"p%d":{}' % number for number in range(20_000)),
        b'{"description":"\\ud800","title":3,"tags":{},"_meta":[]}',
    )
    tools = [ToolDefinition("s", f"tool{number}", definition) for number, definition in enumerate(definitions)]
    tools += [
        ToolDefinition("s", "\ud800", b"{}"),
        ToolDefinition("s", "", b"{}"),
        ToolDefinition("s", "n" * 1_000_000, b"{}"),
    ]
    index = built(SegmentCache(), [ServerTools("s", "x" * 1_000_000, tuple((tool, None, ()) for tool in tools))])
    assert found(index, "tool3") == [3] or found(index, "tool3")[0] == 3


# -- meaning --------------------------------------------------------------------------------------------------------


def test_a_paraphrase_is_found_by_its_meaning() -> None:
    meanings = Meanings("weather")
    groups = servers(2, 20)
    groups.append(ServerTools("meteo", "", (entry("meteo", "forecast", "weather"),)))
    index = built(SegmentCache(vectors=meanings), groups)
    assert found(index, "umbrella needed") == []
    hit = index.search("umbrella needed", meanings.of("weather"))[0]
    assert (hit.position, hit.lexical) == (40, 0.0)
    assert hit.cosine == pytest.approx(1.0)


def test_each_piece_of_a_long_request_finds_its_tool() -> None:
    meanings = Meanings("weather", "music")
    groups = [*servers(2, 20), ServerTools("m", "", (entry("m", "forecast", "weather"), entry("m", "play", "music")))]
    index = built(SegmentCache(vectors=meanings), groups)
    pieces = np.stack([meanings.of("weather"), meanings.of("music")])
    assert sorted(found(index, "umbrella concert", pieces)) == [40, 41]


def test_vectors_that_are_not_known_are_wanted_and_taken_over_later() -> None:
    meanings = Meanings("weather")
    meanings.known_texts = set()
    groups = [*servers(2, 20), ServerTools("meteo", "", (entry("meteo", "forecast", "weather"),))]
    index = built(SegmentCache(vectors=meanings), groups)
    assert len(meanings.pending) == 41
    assert not index.vectors_known
    assert found(index, "umbrella", meanings.of("weather")) == []
    meanings.known_texts = None
    index.refresh()
    while index.step():
        pass
    assert index.vectors_known
    assert found(index, "umbrella", meanings.of("weather")) == [40]


def test_what_gets_known_while_vectors_are_taken_over_is_not_missed() -> None:
    meanings = Meanings("weather")
    meanings.known_texts = set()
    index = SegmentCache(vectors=meanings).begin(servers(2, 20))
    while not index.ready:
        index.step()
    meanings.known_texts = None
    index.refresh()
    while index.step():
        pass
    assert index.vectors_known


def test_another_ranker_can_be_put_in() -> None:
    def last_first(lexical: Floats, cosine: Floats | None, known: Flags | None) -> Floats:
        return np.arange(len(lexical), dtype=np.float32)

    index = built(
        SegmentCache(last_first), [ServerTools("s", "", tuple(entry("s", f"x{n}", "same") for n in range(3)))]
    )
    assert found(index, "same") == [2, 1, 0]


# -- explaining -----------------------------------------------------------------------------------------------------


def test_an_explanation_says_words_fields_and_nearness() -> None:
    meanings = Meanings("weather")
    index = built(
        SegmentCache(vectors=meanings),
        [*servers(1, 5), ServerTools("meteo", "", (entry("meteo", "weather", "weather"),))],
    )
    hit = index.search("Weather tomorrow", meanings.of("weather"))[0]
    explanation = index.explain("Weather tomorrow", hit)
    assert [(word, field) for word, field, _ in explanation.words] == [("Weather", "name"), ("Weather", "description")]
    assert sum(share for _, _, share in explanation.words) == pytest.approx(hit.lexical, rel=1e-4)
    assert (explanation.cosine, explanation.lexical, explanation.named) == (hit.cosine, hit.lexical, False)


# -- what did not change is taken over ------------------------------------------------------------------------------

QUERIES = (
    "create issue",
    "search messages",
    "delete a photo 3",
    "server1",
    "list",
    "branches and playlists",
    "about flights",
)


def same(one: CatalogIndex, other: CatalogIndex) -> bool:
    return all(
        [(hit.position, hit.named) for hit in one.search(query, None)]
        == [(hit.position, hit.named) for hit in other.search(query, None)]
        for query in QUERIES
    )


def test_an_index_after_changes_is_like_one_made_from_scratch() -> None:
    draw = random.Random(7)
    segment_cache, groups = SegmentCache(), servers(6, 40)
    built(segment_cache, groups)
    for turn in range(20):
        place = draw.randrange(len(groups))
        group = groups[place]
        tools = list(group.tools)
        if draw.random() < 0.3 and len(tools) > 1:
            del tools[draw.randrange(len(tools))]
        else:
            name = f"{draw.choice(VERBS)}_{draw.choice(THINGS)}_new{turn}"
            tools.insert(draw.randrange(len(tools) + 1), entry(group.server, name, f"New {turn}"))
        groups[place] = replace(group, tools=tuple(tools))
        if draw.random() < 0.2:
            draw.shuffle(groups)
        assert same(built(segment_cache, groups), built(SegmentCache(), groups))


def test_unchanged_tools_are_not_read_again() -> None:
    segment_cache, groups = SegmentCache(), servers(4, 150)
    before = built(segment_cache, groups)
    first = {id(segment) for segment in before.segments}
    equal = built(segment_cache, servers(4, 150))
    assert {id(segment) for segment in equal.segments} == first
    changed = (entry("server3", "brand_new"), *groups[3].tools)
    after = built(segment_cache, [*groups[:3], replace(groups[3], tools=changed), *groups[4:]])
    assert 0 < sum(segment.size for segment in after.segments if id(segment) not in first) <= 129


def test_what_is_no_longer_used_is_let_go() -> None:
    segment_cache = SegmentCache(spare_tools=100)
    before = built(segment_cache, servers(2, 50))
    for seed in range(2, 10):
        built(segment_cache, servers(2, 50, seed))
    again = built(segment_cache, servers(2, 50))
    assert not {id(segment) for segment in before.segments} & {id(segment) for segment in again.segments}


def test_a_vocabulary_full_of_words_of_the_past_starts_anew() -> None:
    segment_cache = SegmentCache()
    segment_cache.vocabulary = Vocabulary(max_terms=300)
    for seed in range(30):
        server = f"s{seed}"
        built(segment_cache, [ServerTools(server, "", tuple(entry(server, f"word{seed}x{n}") for n in range(10)))])
    last = [ServerTools("s", "", (entry("s", "really_new", "unheard"),))]
    built(segment_cache, last)
    assert found(built(segment_cache, last), "unheard") == [0]


def test_an_old_collection_still_answers_when_the_vocabulary_started_anew() -> None:
    segment_cache = SegmentCache()
    old = built(segment_cache, [ServerTools("s", "", (entry("s", "old_word"),))])
    segment_cache.vocabulary = Vocabulary()
    built(segment_cache, [ServerTools("t", "", (entry("t", "new_word"),))])
    assert found(old, "old") == [0]
    assert found(old, "new") == []


def test_two_collections_may_be_built_at_the_same_time() -> None:
    segment_cache, one, other = SegmentCache(), servers(4, 60, 1), servers(4, 60, 2)
    first, second = segment_cache.begin(one), segment_cache.begin(other)
    while first.step() | second.step():
        pass
    assert same(first, built(SegmentCache(), one))
    assert same(second, built(SegmentCache(), other))


def test_the_order_does_not_depend_on_the_hash_seed() -> None:
    code = (
        "from tests.unit.search.test_catalog_index import *\n"
        "c = built(SegmentCache(), servers(5, 40))\n"
        "print([(h.position, h.score) for q in QUERIES for h in c.search(q, None)],"
        " [c.explain(q, c.search(q, None)[0]).words for q in QUERIES])"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
    both = [
        subprocess.Popen(
            [sys.executable, "-c", code], env={**environment, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True
        )
        for seed in ("0", "1")
    ]
    one, other = (running.communicate(timeout=at_most(60))[0] for running in both)
    assert one == other
    assert len(one) > 1000


def test_tags_of_an_operator_are_asked_for_while_a_tool_is_indexed() -> None:
    asked: list[str] = []

    def tags_of(tool: ToolDefinition, shown: str | None) -> tuple[str, ...]:
        asked.append(tool.name)
        return ("nautical",) if tool.name == "go" else ()

    segment_cache = SegmentCache()
    groups = [ServerTools("s", "", (entry("s", "go"), entry("s", "stay", "", None, "terrestrial")))]
    index = segment_cache.begin(groups, tags_of)
    assert asked == []
    index.finish()
    assert sorted(asked) == ["go", "stay"]
    assert index.tagged(["nautical"]) == [0]
    assert index.tagged(["terrestrial"]) == [1]
    (hit,) = index.search("nautical", None)
    assert [field for _, field, _ in index.explain("nautical", hit).words] == ["tags"]
    assert built(segment_cache, groups).tagged(["nautical"]) == []


def test_a_query_without_meaning_is_ranked_by_its_words_whatever_is_known_of_tools() -> None:
    meanings = Meanings("weather")
    groups = servers(2, 20)
    by_words = found(built(SegmentCache(), groups), "create an issue")
    index = built(SegmentCache(vectors=meanings), groups)
    nothing = np.zeros(2, dtype=np.float32)
    assert found(index, "create an issue", nothing) == by_words
    meanings.known_texts = set(index.segments[0].texts[::2])
    partly = built(SegmentCache(vectors=meanings), groups)
    assert found(partly, "create an issue", nothing) == by_words
    assert {hit.cosine for hit in partly.search("create an issue", nothing)} == {None}


def test_an_index_that_was_stopped_before_it_was_ready_finds_nothing() -> None:
    index = SegmentCache(vectors=Meanings("weather")).begin(servers(2, 500))
    index.step()
    index.stop()
    assert not index.ready
    assert found(index, "create an issue", np.ones(2, dtype=np.float32)) == []
    assert index.tagged(["file"]) == []
    assert index.step() is False


def test_a_vector_once_taken_over_stays_when_the_store_forgets_it() -> None:
    meanings = Meanings("weather")
    index = SegmentCache(vectors=meanings).begin(
        [ServerTools("m", "", tuple(entry("m", f"weather{n}") for n in range(3)))]
    )
    first, second, _ = (f"m weather {number}:  Parameters: id" for number in range(3))
    meanings.known_texts = {first}
    index.finish()
    meanings.known_texts = {second}
    index.refresh()
    index.finish()
    assert [hit.cosine is not None for hit in sorted(index.search("weather", np.ones(2, dtype=np.float32)))] == [
        True,
        True,
        False,
    ]
