"""Splits text, identifiers and requests into the terms that a search compares."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice, pairwise
from typing import Final

from trunkline.search.index.stemming import stem

# Abbreviations in names of tools and parameters; each line begins with the word that requests have for them.
_ABBREVIATIONS: Final = """
account acct
address addr
amount amt
application app apps
argument arg args
attribute attr attrs
authentication auth
average avg
command cmd
configuration cfg config configs
database db dbs
destination dest
directory dir dirs
document doc docs
environment env envs
execute exec
image img imgs
information info
language lang langs
latitude lat
location loc
longitude lng lon
management mgmt
message msg msgs
number num
organization org orgs
package pkg pkgs
parameter param params
picture pic pics
project proj
quantity qty
reference ref refs
repository repo repos
source src
statistic stats
transaction txn
"""


_SPELLED_OUT: Final = {
    short: words[0] for words in map(str.split, _ABBREVIATIONS.strip().splitlines()) for short in words[1:]
}

_FUNCTION: Final = """
a an and are as at be by for from has have in is it its of on or that the their this to was were which with
"""
_REQUEST: Final = """
about after again all also am any anyone anything because been before being both but can cannot could did do does doing
done during each either else etc even ever few further get gets getting give given gives go going good got had hello
help her here hers hey hi him his how however i if im into just kindly know let lets like ll looking make many may maybe
me might mine more most much must my myself need needed needs no nor not now ok okay once one only other our ours own
per please possible re really same say see several shall she should show since so some someone something such suggest
sure tell than thank thanks them then there these they thing things those through too try trying until upon us use used
using ve very via want wanted wants way we well what when where whether while who whom whose why will wish within
without would yes yet you your yours
"""
_FUNCTION_WORDS: Final = frozenset(_FUNCTION.split())
"""Left out of running text, in tools and in requests: nearly all text has them."""
_REQUEST_WORDS: Final = _FUNCTION_WORDS | frozenset(_REQUEST.split())
"""Left out of requests too: what people write around what they look for."""

MAX_QUERY: Final = 2000
"""Characters of a query that are read."""
MAX_QUERY_TERMS: Final = 96
_LONGEST_WORD: Final = 64
_SHORTEST_HALF: Final = 3
_LONGEST_COMPOUND: Final = 24
_REMEMBERED: Final = 16_384

_IDENTIFIER: Final = re.compile(r"[^\W_]+(?:[_.-]+[^\W_]+)*")
_WORD: Final = re.compile(r"[^\W_]+")
_PART: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\d_A-Za-z]+")
_SCRIPT_WITHOUT_SPACES: Final = re.compile("[\u0e00-\u0eff\u1000-\u109f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def text_terms(text: str) -> list[str]:
    """The terms of running text in order; an identifier yields its parts and itself."""
    terms: list[str] = []
    for word in _IDENTIFIER.findall(_plain(text)):
        if word not in _FUNCTION_WORDS:
            terms += _terms_of(word)
    return terms


def name_terms(name: str) -> list[str]:
    """The terms of a name, function words among them: a name may consist of those."""
    return [term for word in _IDENTIFIER.findall(_plain(name)) for term in _terms_of(word)]


def query_words(query: str) -> dict[str, str]:
    """Each term of a request with the word it comes from, without request words, unless there are no others."""
    words = _IDENTIFIER.findall(_plain(query[:MAX_QUERY]))
    informative = [word for word in words if word.lower() not in _REQUEST_WORDS]
    found: dict[str, str] = {}
    for word in informative or words:
        for term in _terms_of(word):
            found.setdefault(term, word)
    return dict(islice(found.items(), MAX_QUERY_TERMS))


def joined_words(query: str) -> Iterator[tuple[str, str]]:
    """Terms of neighbouring words written as one, as a tool may have it: `screen shot` and `screenshot`."""
    words = [word.lower() for word in _WORD.findall(_plain(query[:MAX_QUERY]))[:MAX_QUERY_TERMS]]
    for first, second in pairwise(words):
        if first not in _REQUEST_WORDS and second not in _REQUEST_WORDS:
            joined = first + _terms_of(second)[0]
            yield joined, f"{first} {second}"
            if joined.endswith("e"):
                yield joined[:-1], f"{first} {second}"


def halves(word: str) -> Iterator[tuple[str, str]]:
    """Every way to split a word in two: `webpage` may be `web` and `page`."""
    if word.isalpha() and len(word) <= _LONGEST_COMPOUND:
        for cut in range(_SHORTEST_HALF, len(word) - _SHORTEST_HALF + 1):
            yield word[:cut].lower(), word[cut:].lower()


def split_name(name: str) -> str:
    """A name as one would say it: `getWeatherByCity` is `get weather by city`."""
    return " ".join(part.lower() for part in _PART.findall(_plain(name)))


def normalized_name(name: str) -> str:
    """A name as all its spellings have it: `create_issue`, `createIssue` and `Create issue` are the same."""
    return "".join(_WORD.findall(_plain(name).lower()))


def _plain(text: str) -> str:
    """Compatibility forms normalized, accents removed."""
    if text.isascii():
        return text
    apart = unicodedata.normalize("NFKD", text)
    return unicodedata.normalize("NFC", "".join([char for char in apart if not "\u0300" <= char <= "\u036f"]))


@lru_cache(_REMEMBERED)
def _terms_of(identifier: str) -> tuple[str, ...]:
    identifier = identifier[:_LONGEST_WORD]
    if not identifier.isascii() and _SCRIPT_WITHOUT_SPACES.search(identifier):
        run = identifier.lower()  # if words are not set apart, neighbouring characters do instead
        return tuple(run[i : i + 2] for i in range(max(len(run) - 1, 1)))
    parts: list[str] = [part.lower() for part in _PART.findall(identifier)]
    stems = [stem(_SPELLED_OUT.get(part, part)) for part in parts]
    if len(parts) > 1:
        stems.append(stem("".join(parts)))
    return tuple(stems)
