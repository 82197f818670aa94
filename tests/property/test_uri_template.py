"""Every expansion of a template matches it, whatever the values are; what differs in a literal does not."""

from __future__ import annotations

from urllib.parse import quote

from hypothesis import given
from hypothesis import strategies as st

from trunkline.protocol.uri_template import UriTemplate

UNRESERVED = "-._~"
RESERVED = "!#$&'()*+,/:;=?@[]"
OPERATORS = {
    # operator: first, separator, named, and the characters that stay as they are
    "": ("", ",", False, UNRESERVED),
    "+": ("", ",", False, UNRESERVED + RESERVED),
    "#": ("#", ",", False, UNRESERVED + RESERVED),
    ".": (".", ".", False, UNRESERVED),
    "/": ("/", "/", False, UNRESERVED),
    ";": (";", ";", True, UNRESERVED),
    "?": ("?", "&", True, UNRESERVED),
    "&": ("&", "&", True, UNRESERVED),
}

names = st.from_regex(r"[a-z][a-z0-9_]{0,5}", fullmatch=True)
variables = st.lists(st.tuples(names, st.sampled_from(["", "*", ":3"])), min_size=1, max_size=3)
values = st.none() | st.text(max_size=12) | st.lists(st.text(max_size=6), min_size=1, max_size=3)
literals = st.text(st.sampled_from("abc/:-.%20é?&="), max_size=6).map(lambda text: text.replace("%", ""))
expressions = st.tuples(st.sampled_from(sorted(OPERATORS)), variables)
templates = st.lists(st.tuples(literals, expressions), max_size=4)


def expand(operator: str, variables: list[tuple[str, str]], chosen: dict[str, object]) -> str:
    """RFC 6570, section 3.2.1, for strings and lists."""
    first, separator, named, safe = OPERATORS[operator]
    parts: list[str] = []
    for name, modifier in variables:
        value = chosen.get(name)
        if value is None:
            continue
        if isinstance(value, str):
            text = quote(value[:3] if modifier == ":3" else value, safe=safe)
            parts.append(_pair(operator, name, text) if named else text)
        else:
            items = [quote(item, safe=safe) for item in value]
            if modifier == "*":
                parts.append(separator.join(_pair(operator, name, item) if named else item for item in items))
            else:
                text = ",".join(items)
                parts.append(_pair(operator, name, text) if named else text)
    return first + separator.join(parts) if parts else ""


def _pair(operator: str, name: str, text: str) -> str:
    return name if operator == ";" and not text else f"{name}={text}"


@given(templates, literals, st.dictionaries(names, values, max_size=6), st.data())
def test_an_expansion_matches_its_template(parts, end, more, data) -> None:
    template = uri = ""
    for literal, (operator, variables) in parts:
        chosen = {name: data.draw(values) for name, _ in variables} | more
        names_with_modifiers = ",".join(name + modifier for name, modifier in variables)
        template += literal + "{" + operator + names_with_modifiers + "}"
        uri += quote(literal, safe=UNRESERVED + RESERVED) + expand(operator, variables, chosen)
    template += end
    uri += quote(end, safe=UNRESERVED + RESERVED)
    if uri:
        assert UriTemplate(template).matches(uri)


@given(st.text(max_size=40), st.text(max_size=40))
def test_any_text_is_taken_without_an_exception(template: str, uri: str) -> None:
    matches = UriTemplate(template).matches(uri)
    if not set(template) & set("{}") and template.isascii() and template.isprintable() and " " not in template:
        assert matches == (template == uri and bool(uri))


@given(st.text("ab/", max_size=12), st.text("ab/", max_size=8), st.text("ab/", max_size=8))
def test_a_plain_variable_takes_what_has_no_slash(between: str, before: str, after: str) -> None:
    matches = UriTemplate("x:" + before + "{v}" + after).matches("x:" + before + between + after)
    assert matches >= ("/" not in between)


@given(st.text("ab", max_size=10), st.text("ab/", max_size=30))
def test_it_agrees_with_a_search_of_all_ways(literal: str, uri: str) -> None:
    """`{v}` literal `{w}`: some place of the literal has no slash before it and none behind."""
    ways = [
        "/" not in uri[:start] and "/" not in uri[start + len(literal) :]
        for start in range(len(uri) + 1)
        if uri.startswith(literal, start)
    ]
    assert UriTemplate("x:{v}" + literal + "{w}").matches("x:" + uri) == any(ways)
