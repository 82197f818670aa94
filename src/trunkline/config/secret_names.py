"""Tells by name which variables, headers, options and JSON members hold secrets, and which values are ordinary words.

A name is split into words. One of them must stand for a secret (`GITHUB_TOKEN_WORK`), and none after it may say that
this is only a fact about one (`TOKEN_LIMIT`, `PASSWORD_FILE`). Ambiguous words count only at the end of a name.
"""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal

# -- words: the vocabulary of the tool search, terms of the trade, and what reads like English -----------------------

_VOCABULARY: Final = Path(__file__).parents[1] / "search" / "index" / "data" / "vocab.txt"
_OF_OUR_TRADE: Final = """
    airtable artifactory bigquery bitbucket bytecode cassandra checkbox chromium circleci clickhouse cloudflare
    cloudfront cockroachdb confluence couchdb couchbase databricks datacenter datadog dropbox duckdb dynamodb
    elasticache elasticsearch fargate fastapi filesystem firestore github gitlab grafana graphql hashicorp hypertext
    influxdb internationalization javascript jenkins jetbrains kerberos kibana kubernetes langchain letsencrypt
    linkedin localhost logstash mailchimp mailgun mariadb memcached microservice middleware minikube mixpanel mongodb
    monorepo namespace newrelic nodejs okta openai openshift opensearch opentelemetry ollama openrouter openstack
    pagerduty pinecone playwright podman postgres postgresql postman powershell prometheus puppeteer pytorch qdrant
    rabbitmq readonly redshift runtime sagemaker salesforce selenium sendgrid serverless servicenow shopify
    snowflake sourcegraph sqlalchemy sqlserver stacktrace stackoverflow stderr stdout subprocess subdomain supabase
    tensorflow terraform timescaledb timestamp traefik trunkline tailscale typescript username vercel virtualenv
    weaviate webhook websocket whatsapp whitelist wordpress workspace zookeeper
"""
"""Names of products, and terms that are in no dictionary."""
_LONGEST: Final = 20
_SHORTEST_JOINED: Final = 3
_ONE_CASE: Final = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)\Z")
_PAIRS: Final = (
    "abcdfgiklmnprstuvwy baeilorsu cacehiklorstuy dadeilorsuy eabcdefgilmnopqrstuvwxy faefilortu "
    "gaeghilnorsu haeiortuy iabcdefglmnoprstvz jaeou keis ladeilostuy mabeimopsu nacdefgiknostuvy "
    "oabcdfgiklmnoprstuvwy paehiloprstu qu racdefgiklmnoprstuvy sacehiklmopstuwy tacehilorstuy "
    "uabcdegilmnprst vaeio waehinos xcipt yeimos ze"
)
_FOLLOWERS: Final = {letters[0]: frozenset(letters[1:]) for letters in _PAIRS.split()}
"""The letters that follow each letter in English words, without rare pairs."""
_LETTERS_PER_RARE_PAIR: Final = 10


def is_word(text: str) -> bool:
    """Whether this is a word, or two joined ones (`workflow`). Less than one in a hundred random texts passes."""
    if len(text) > _LONGEST or _ONE_CASE.match(text) is None:
        return False
    word = text.lower()
    known = _known()
    seams = range(_SHORTEST_JOINED, len(word) - _SHORTEST_JOINED + 1)
    if word in known or any(word[:at] in known and word[at:] in known for at in seams):
        return True
    rare = sum(second not in _FOLLOWERS[first] for first, second in pairwise(word))
    return rare <= len(word) // _LETTERS_PER_RARE_PAIR


@cache
def _known() -> frozenset[str]:
    """The vocabulary, read at its first use: most starts never need it."""
    try:
        pieces = _VOCABULARY.read_text(encoding="utf-8").split()
    except OSError:
        pieces = []
    return frozenset(piece for piece in pieces if piece.isalpha() and len(piece) >= _SHORTEST_JOINED).union(
        _OF_OUR_TRADE.split()
    )


_LONGEST_NAME: Final = 200
_ANYWHERE: Final = ("token", "secret", "password", "passwd", "passphrase", "passcode", "credential", "basicauth")
_AT_THE_END: Final = ("key", "pass", "pwd", "pw")
"""These and those above may be joined to other words: PGPASSWORD, SASKEY, LDAP_BINDPW."""
_WHOLE_ANYWHERE: Final = ("authorization", "jwt")
_WHOLE: Final = ("pat", "auth", "oauth", "cookie", "bearer", "psk", "cred")
_ALL: Final = "|".join((*_WHOLE_ANYWHERE, "proxy-authorization", *_WHOLE, *_ANYWHERE, *_AT_THE_END))
NAME_WORDS: Final = rf"(?i:(?:{_ALL})[s2]?)"
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*|\d+")
_WHICH: Final = re.compile(
    r"""(?: v?\d+(?!\d)|base|pem|b64|hex|json|value|production|prod|staging|dev|test|live|r[ow]
    |old|new|current|previous|next|main|default|backup|work|personal|primary|secondary )*\Z""",
    re.VERBOSE,
)
"""Words that distinguish one of several secrets, or say how it is written. They may be joined: `token2`."""
_NO_SECRETS: Final = """
    monkey donkey turkey hockey jockey whiskey lackey flunkey turnkey hotkey
    compass bypass surpass trespass overpass underpass lowpass highpass bandpass subpass multipass askpass
"""
_WORDS_NO_SECRETS: Final = frozenset(_NO_SECRETS.split())
_OF_SECRET_KEYS: Final = frozenset(("api", "access", "private", "secret", "master", "signing", "encryption"))
_OF_OPEN_KEYS: Final = frozenset(("sort", "primary", "partition", "foreign", "public", "pub", "config", "cache"))
"""Keys that identify something, or are public."""
_OF_VAGUE_KEYS: Final = frozenset(("project", "routing", "object", "s3", "state", "group", "lookup"))
_VAGUE: Final = frozenset(("pat", "auth", "oauth"))
_ABOUT: Final = """
    limit max maximum min minimum count counter num number ttl age expire expiry expiration lifetime duration timeout
    interval rate per used left remaining budget url uri endpoint host port address domain file filename path dir
    directory folder location name type kind length len size byte bit id env var variable prefix suffix header format
    encoding algorithm alg method mode strategy provider store storage backend manager cache audience issuer scope
    policy rotation required enabled disabled in field param parameter version
"""
_WORDS_ABOUT: Final = frozenset(_ABOUT.split())
"""Words that, after the word for a secret, say that this is a fact about it."""
_OF_COUNTED: Final = "input output prompt completion context thinking reasoning budget total stop special"
_OF_COUNTED_TOKENS: Final = frozenset(_OF_COUNTED.split())
"""Tokens that are parts of a text."""

Certainty = Literal["sure", "unless a number", "vague", ""]
_CERTAINTIES: Final[tuple[Certainty, ...]] = ("sure", "unless a number", "vague")


def is_secret_name(name: str) -> bool:
    """Whether something of this name usually holds a secret, or may."""
    return certainty_of(name) != ""


def certainty_of(name: str) -> Certainty:
    """How certainly this is the name of a secret. Under a vague name (AUTH, ROUTING_KEY) only random values are
    secrets; numbers of tokens are counts."""
    # what comes before `=` in a text may be of any length
    words = [word.lower() for word in _WORD.findall(name[-_LONGEST_NAME:])]
    if len(words) > 1 and words[0] in ("no", "disable", "without", "skip"):
        return ""
    found = {_certainty_at(words, at) for at in range(len(words))}
    for certainty in _CERTAINTIES:
        if certainty in found:
            return certainty
    return ""


def _certainty_at(words: list[str], at: int) -> Certainty:
    before, after = words[at - 1] if at else "", words[at + 1 :]
    stem = _stem(words[at])
    is_key = stem == "key"
    is_phrase = before == "pass" and stem in ("phrase", "word", "code")
    if is_phrase or stem in _WHOLE_ANYWHERE or stem.endswith(_ANYWHERE) or (is_key and before in _OF_SECRET_KEYS):
        return _certainty_of_strong(words[:at], words[at], after)
    if stem not in _WHOLE and not stem.endswith(_AT_THE_END):
        return ""
    if not _WORDS_NO_SECRETS.isdisjoint((stem, before + stem)):
        return ""
    rest = after[1:] if stem in _VAGUE and after[:1] == ["header"] else after
    if not all(map(_WHICH.match, rest)) or (is_key and before in _OF_OPEN_KEYS):
        return ""
    return "vague" if stem in _VAGUE or (is_key and before in _OF_VAGUE_KEYS) else "sure"


def _stem(word: str) -> str:
    """A word in the singular, without what distinguishes one of several."""
    which = _WHICH.search(word)
    word = word if which is None else word[: which.start()]
    return word if word.endswith("pass") else word.removesuffix("s")


def _certainty_of_strong(before: list[str], word: str, after: list[str]) -> Certainty:
    if {"max", "min", "num"}.intersection(before) or (word == "tokens" and before and before[-1] in _OF_COUNTED_TOKENS):
        return ""
    if word == "secret" and after[:1] == ["id"]:  # Vault's is a secret, others are names
        return "" if _is_about(after[1:]) else "vague"
    if _is_about(after):
        return ""
    return "unless a number" if word == "tokens" else "sure"


def _is_about(words: list[str]) -> bool:
    return any(word in _WORDS_ABOUT or word.removesuffix("s") in _WORDS_ABOUT for word in words)
