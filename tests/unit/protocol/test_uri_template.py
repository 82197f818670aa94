from __future__ import annotations

import pytest

from trunkline.protocol.uri_template import MAX_CHARACTERS, CandidateUri, UriTemplate


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("test://template/{id}/data", "test://template/123/data"),
        ("test://template/{id}/data", "test://template/a%20b/data"),
        ("test://{a}-{b}", "test://x-y-z"),
        ("file:///{+path}", "file:///home/me/a.txt?x#y"),
        ("x:{/a,b}", "x:/1/2"),
        ("x:{/a,b}", "x:/1"),
        ("x:{/a,b}", "x:"),
        ("x:{/a*}", "x:/1/2/3/4"),
        ("x://h{.ext}", "x://h.json"),
        ("x://h{;p,q}", "x://h;p=1;q"),
        ("x://h{?q,lang}", "x://h?q=1&lang=de"),
        ("x://h{?q,lang}", "x://h?lang=de"),
        ("x://h{?q}{&more*}", "x://h?q=1&a=2&b=3"),
        ("x://h{#part}", "x://h#top"),
        ("x://{name:3}", "x://abc"),
        ("x://straße/{n}", "x://stra%C3%9Fe/1"),
        ("x://straße/{n}", "x://straße/1"),
        ("plain://uri", "plain://uri"),
    ],
)
def test_expansions_match(template: str, uri: str) -> None:
    assert UriTemplate(template).matches(uri)


@pytest.mark.parametrize(
    ("template", "uri"),
    [
        ("test://template/{id}/data", "test://template/1/2/data"),
        ("test://template/{id}/data", "test://template/1/data/more"),
        ("test://template/{id}/data", "test://other/1/data"),
        ("x:{/a,b}", "x:/1/2/3"),
        ("x://h{?q}", "x://h/more?q=1"),
        ("x://h{?q}", "x://h?q=1#part"),
        ("x://{a}", ""),
        ("x://{", "x://1"),
        ("x://{}", "x://1"),
        ("x://{a b}", "x://1"),
        ("x://{!a}", "x://1"),
        ("x://}{a}", "x://1"),
        ("plain://uri", "plain://uri/"),
    ],
)
def test_anything_else_does_not(template: str, uri: str) -> None:
    assert not UriTemplate(template).matches(uri)


def test_one_uri_may_be_tried_on_many_templates() -> None:
    subject = CandidateUri("x://a/b")
    templates = ["x://{a}", "y://{a}/{b}", "x://{a}/{b}", "x://{+all}", "x://a{/b}"]
    assert [UriTemplate(text).matches(subject) for text in templates] == [False, False, True, True, True]


def test_what_is_far_too_long_matches_nothing() -> None:
    assert not UriTemplate("x:{+a}").matches("x:" + "a" * MAX_CHARACTERS)
    assert not UriTemplate("x:{+a}" + "b" * MAX_CHARACTERS).matches("x:" + "b" * 10)


def test_a_template_made_to_be_slow_is_answered_all_the_same() -> None:
    many = "{+a}a" * (MAX_CHARACTERS // 5 - 1)
    assert not UriTemplate(many + "!").matches("a" * MAX_CHARACTERS)
    assert UriTemplate(many).matches("a" * MAX_CHARACTERS)
