"""Tells which values are secret, by name and by look: the one rule for everything that hides secrets.

Secrets are values from `${…}`, an `envFile` or the inherited environment, values under the name of a secret, whatever
looks like a credential, and the user, password, query values and random path segments of a URL. Paths, single words and
anything under eight characters are not: hiding them would make logs unreadable and give them away. Under the name of a
secret, a value that merely begins like a path is secret all the same: passwords may.

A name is split into words. One of them must stand for a secret (`GITHUB_TOKEN_WORK`), and none after it may say that
this is only a fact about one (`TOKEN_LIMIT`, `PASSWORD_FILE`). Ambiguous words count only at the end of a name.
"""

from __future__ import annotations

import os
import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import Final, Literal, cast
from urllib.parse import unquote_plus

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


# -- names ------------------------------------------------------------------------------------------------------------

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


# -- values -----------------------------------------------------------------------------------------------------------

SHORTEST_SECRET: Final = 8
CREDENTIAL: Final = re.compile(
    r"""
      (?:Bearer|Basic)[ ]+[^\s${"']{8,}
    | \b(?:sk|pk|rk)-[\w-]{16,}
    | \b(?:sk|pk|rk)_(?:live|test)_\w{10,}
    | (?<![\w-])eyJ[\w-]{5,}\.eyJ[\w-]{5,}\.[\w-]*
    | \b(?:gh[pousr]|github_pat)_\w{16,}
    | \bglpat-[\w-]{16,}
    | \bxox[abprs]-[\w-]{10,}
    | \bAKIA[0-9A-Z]{16}\b
    | \bAIza[\w-]{30,}
    | ://[^/\s:@]+:[^/\s@$]+@
    """,
    re.VERBOSE,
)
_SCHEME_OF_HEADER: Final = re.compile(r"(?:Bearer|Basic|Token|Bot|ApiKey)\s+", re.IGNORECASE)
_ASSIGNED: Final = re.compile(r"""(?<![\w.-])([A-Za-z-][\w.-]*)\\?["']?\s*[=:]\s*\[?(\\?["'])?""")
# No possessive quantifier on a group: Python 3.11.2 matches those otherwise than 3.11.7 does.
_TO_QUOTE: Final = {
    '"': re.compile(r'([^"\\]*(?:\\.[^"\\]*)*)"', re.DOTALL),
    "'": re.compile(r"([^'\\]*(?:\\.[^'\\]*)*)'", re.DOTALL),
    '\\"': re.compile(r'([^"\\]*(?:\\[^"][^"\\]*)*)\\"', re.DOTALL),
    "\\'": re.compile(r"([^'\\]*(?:\\[^'][^'\\]*)*)\\'", re.DOTALL),
}
_ASSIGNED_VALUE: Final = re.compile(
    r"""(?:(?:Bearer|Basic|Token|Bot|ApiKey)\s+)?((?!-----BEGIN)[^\s"'&;,\\{}]+)""", re.IGNORECASE
)
_TO_NEXT_NAME: Final = re.compile(
    r"""(?:(?:Bearer|Basic|Token|Bot|ApiKey)\s+)?((?!-----BEGIN)[^\s"'&;,{]*(?:[&;,{](?![\w.-]{1,64}[=:])[^\s"'&;,{]*)*)""",
    re.IGNORECASE,
)
"""A password may contain separators: it ends where another name follows."""
_WHOLLY_ASSIGNED: Final = re.compile(r"(-{0,2}[A-Za-z][\w.-]*)\s*[=:]\s*(.+)\Z", re.DOTALL)
_COMMAND: Final = re.compile(r"\w+=\S+\s.*\s-", re.DOTALL)
"""A variable set for a command that follows."""
_AFTER_OPTION: Final = re.compile(r"""(?<!\S)--?([A-Za-z][\w-]*)\s+(?:"([^"]+)"|'([^']+)'|([^\s"'-][^\s"']*))""")
_BASIC: Final = re.compile(r"\bBasic\s+([A-Za-z0-9+/_-]{8,}={0,2})", re.IGNORECASE)
_OPTION: Final = re.compile(r"--?[A-Za-z][a-z]*(?:-[a-z]+)*(?:=.*)?\Z", re.DOTALL)

# -- URLs -------------------------------------------------------------------------------------------------------------

_URL: Final = re.compile(
    r"""(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]*://(?:(?P<userinfo>[^/?#\s"'<>]*)@)?[^/?#\s"'<>@]*(?P<path>[^?#\s"'<>]*)
    (?:\?(?P<query>[^#\s"'<>]*))?(?:\#(?P<fragment>[^\s"'<>]*))?""",
    re.VERBOSE,
)
_RANDOM: Final = re.compile(r"(?=.*\d\D+\d)(?=.*[A-Za-z])[\w+/=.~%-]{16,}\Z")
"""Long, with letters, and digits in more than one place."""
_BETWEEN_SEGMENTS: Final = re.compile(r"[/;]|(?<=[^=/])=(?=[^=/])")
_LETTERS: Final = re.compile(r"[A-Za-z\d]{16,}={0,2}\Z")
_RUN: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_SHORTEST_RUNS: Final = 2.6
"""Joined words have more letters each; random text has about two of one case in a row."""
_SLASH_IN_PASSWORD: Final = re.compile(r"://[^/\s:@]{1,256}:(?!\d{1,5}/)([^\s@\"'<>]{1,256})@")
_PASSWORD_OF_GO: Final = re.compile(r"(?<![\w.-])[\w.-]{1,256}:([^\s@]{1,256})@(?:tcp|unix)\(")
"""Go's names of databases: `user:password@tcp(host:port)/name`."""

# -- what is not secret -----------------------------------------------------------------------------------------------

_PATH: Final = re.compile(r"(?:~[\w.-]*|\.{1,2}|[A-Za-z]:|)[/\\]")
_FROM_A_PLACE: Final = re.compile(r"(?:~[\w.-]*|\.{1,2}|[A-Za-z]:)[/\\]|/(?:[A-Z]?[a-z]+\d*|[A-Z]+)/")
"""The beginning of a path with several parts, in which folders may have any name."""
_FILE: Final = re.compile(
    r"(?:[\w.@-]+/)*[\w@-][\w.@-]*\.(?:json|pem|key|crt|cer|p12|pfx|jks|ya?ml|toml|ini|txt|env|db|sqlite)\Z"
)
_SLASHED_KEY: Final = re.compile(
    r"/(?!(?:[A-Z]?[a-z]+\d*|[A-Z]+)(?:/|\Z))(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9+/]{15,}={0,2}\Z"
)
"""Base64 in both cases that begins with a slash: unlike a path, its first part is not one word."""
_SEGMENT_BORDER: Final = re.compile(r"[/\\:;]")
_PLAINLY_A_PATH: Final = re.compile(r"(?=(?:[^/\\]*[/\\]){2})[\w./\\:@+~ =,-]*\Z")
_NUMBER: Final = re.compile(r"[-+]?\d{1,9}(?:[.,]\d{1,9})?\Z")
_DATE: Final = re.compile(
    r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,9})?)?(?:Z|[+-]\d\d:?\d\d)?)?\Z|\d\d?([./])\d\d?\1\d{4}\Z"
)
_HOST: Final = re.compile(
    r"""
    (?:[a-z0-9-]+\.)+ (?:[a-z]{2}|com|net|org|edu|gov|info|dev|app|cloud|local|internal|intranet|lan|corp|home|example
        |test|invalid|localhost) (?::\d{1,5})? \Z
    | localhost:\d{1,5} \Z
    | [a-z0-9-]+:(?:[1-9]\d{1,3}|[12]\d{4}|3[01]\d{3}) \Z
    """,
    re.VERBOSE,
)
"""A name with a known ending, or any name with a usual port."""
_IPV4: Final = re.compile(r"(?:\d{1,3}\.){3}\d{1,3}(?:/\d{1,2})?(?::\d{1,5})?\Z")
_IPV6: Final = re.compile(
    r"\[?(?=[^:]*:(?:[^:]*:){6}|[^:]*(?::[^:]+)*::)(?:[0-9a-f]{0,4}:){2,7}[0-9a-f.]*(?:\]:\d{1,5}|\])?\Z", re.IGNORECASE
)
_BETWEEN_WORDS: Final = re.compile(r"[\W_]+")
_SHORT_OR_NUMBER: Final = re.compile(r"(?:[A-Z]?[a-z]{0,7}|[A-Z]{1,7}|[a-z]{1,3}\d{1,3}|\d{1,10})\Z")
_HUMP: Final = re.compile(r"[A-Z]?[a-z]{2,}|[A-Z]{2,}(?![a-z])")


def may_be_secret(value: str) -> bool:
    """Whether a value can be a secret at all."""
    return len(value) >= SHORTEST_SECRET and not is_path(value) and not is_word(value)


def may_be_named_secret(value: str) -> bool:
    """The same for a value under the name of a secret."""
    return len(value) >= SHORTEST_SECRET and not is_path_for_certain(value) and not is_word(value)


def is_named_secret(name: str, value: str) -> bool:
    """Whether the name says that this value is a secret."""
    certainty = certainty_of(name)
    if certainty == "unless a number":
        return not value.isdigit()
    return certainty == "sure" or (certainty == "vague" and looks_random(value))


def secrets_in(name: str, value: object, *, from_outside: bool = False) -> Iterator[str]:
    """The secrets in the value of a key, however deep. Values `from_outside` come from `${…}` or an `envFile`."""
    if isinstance(value, Mapping):
        named = is_secret_name(name)
        for key, inner in cast(Mapping[str, object], value).items():
            yield from secrets_in(name if named else key, inner, from_outside=from_outside)
    elif isinstance(value, list | tuple):
        yield from _in_list(name, cast(Sequence[object], value))
    elif isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        yield from _in_text(name, str(value).strip(), from_outside)


def secrets_in_environment(environ: Mapping[str, str], inherited: Sequence[str] | str = ()) -> Iterator[str]:
    """The secrets among variables. Variables inherited by name count like `${…}`; if all are inherited, only those
    with a random value do."""
    for name, value in environ.items():
        listed = not isinstance(inherited, str) and name in inherited
        random = isinstance(inherited, str) and _RANDOM.match(value) is not None
        yield from secrets_in(name, value, from_outside=listed or random)


def _in_list(name: str, values: Sequence[object]) -> Iterator[str]:
    option = name  # in arguments a value may follow its option: `--token VALUE`
    for value in values:
        is_option = isinstance(value, str) and _OPTION.match(value) is not None
        yield from secrets_in("" if is_option else option, value)
        option = value if isinstance(value, str) and value.startswith("-") and "=" not in value else name


def _in_text(name: str, text: str, from_outside: bool) -> Iterator[str]:
    is_named = is_named_secret(name, text)
    if _URL.fullmatch(text) is None and (is_named or (from_outside and not is_common(text))):
        yield from filter(may_be_named_secret if is_named else may_be_secret, with_and_without_scheme(text))
    yield from filter(may_be_named_secret, (*_assigned(text), *_passwords(text)))
    credentials = (credential.group() for credential in CREDENTIAL.finditer(text))
    by_look = [_SCHEME_OF_HEADER.sub("", credential, count=1).strip(":/@") for credential in credentials]
    yield from filter(may_be_secret, (*by_look, *secrets_in_urls(text)))


def with_and_without_scheme(value: str) -> tuple[str, str]:
    return value, _SCHEME_OF_HEADER.sub("", value, count=1)


def _passwords(text: str) -> Iterator[str]:
    for basic in _BASIC.finditer(text):
        yield from user_and_password(basic[1])
    for password in (*_SLASH_IN_PASSWORD.finditer(text), *_PASSWORD_OF_GO.finditer(text)):
        yield password[1]
    for url in _URL.finditer(text):
        password = (url["userinfo"] or "").partition(":")[2]
        yield from (password, unquote_plus(password))


def _assigned(text: str) -> Iterator[str]:
    """Values of secret names in a text: `--token …`, `--token=…`, `Authorization: …`, a member of JSON."""
    for option in _AFTER_OPTION.finditer(text):
        value = option[2] or option[3] or option[4]
        if is_named_secret(option[1], value):
            yield value
    # a connection string is split: `Server=db;Password=a b&c;Encrypt=yes`
    settings = [part.strip() for part in text.split(";")]
    for setting in settings if sum("=" in part for part in settings) > 1 else [text]:
        whole = _WHOLLY_ASSIGNED.match(setting)
        if whole is None or _URL.match(whole[2]) or _COMMAND.match(setting):
            continue
        if is_named_secret(whole[1], whole[2]):
            yield whole[2]
    assigned = _ASSIGNED.search(text)
    while assigned is not None:
        at = assigned.end()
        if is_secret_name(assigned[1]):
            values = _values_at(text, at, assigned[2])
            at = max(at, *(value.end() for value in values)) if values else at
            for value in values:
                if is_named_secret(assigned[1], value[1]):
                    yield from with_and_without_scheme(value[1])
        assigned = _ASSIGNED.search(text, at)


def _values_at(text: str, at: int, quote: str | None) -> list[re.Match[str]]:
    """The whole text in quotes; otherwise up to a separator, and up to where another name follows."""
    quoted = _TO_QUOTE[quote].match(text, at) if quote else None
    found = [quoted] if quoted else [_ASSIGNED_VALUE.match(text, at), _TO_NEXT_NAME.match(text, at)]
    return [value for value in found if value is not None and _URL.match(value[1]) is None]


def user_and_password(basic: str) -> tuple[str, ...]:
    """The decoded credentials of a `Basic` header, and their password; nothing if it is just a word."""
    try:
        pair = urlsafe_b64decode(basic.replace("+", "-").replace("/", "_").rstrip("=") + "==").decode()
    except ValueError:
        return ()
    _, colon, password = pair.partition(":")
    return (pair, password) if colon and pair.isprintable() else ()


def secrets_in_urls(text: str) -> Iterator[str]:
    for url in _URL.finditer(text):
        yield from _in_url(url)


def is_url(text: str) -> bool:
    return _URL.fullmatch(text) is not None


def _in_url(url: re.Match[str]) -> Iterator[str]:
    userinfo = url["userinfo"] or ""
    user, _, password = userinfo.partition(":")
    segments = (part for part in _BETWEEN_SEGMENTS.split(url["path"]) if _RANDOM.match(part) or _is_mixed(part))
    queries = [pair.partition("=") for part in (url["query"], url["fragment"]) for pair in re.split("[&;]", part or "")]
    values = [value or name for name, _, value in queries if is_secret_name(name) or not is_common(value or name)]
    for secret in (userinfo, user, password, *segments, *values):
        yield secret
        yield unquote_plus(secret)


def is_path(text: str) -> bool:
    """Whether this is a path; some base64 keys begin with a slash as well."""
    if _FILE.match(text) is not None:
        return True
    if _PATH.match(text) is None or _SLASHED_KEY.match(text) is not None:
        return False
    return _FROM_A_PLACE.match(text) is not None or not any(map(_is_random, _SEGMENT_BORDER.split(text)))


def _is_mixed(text: str) -> bool:
    """Long, without digits in two places, and not joined words."""
    return _LETTERS.match(text) is not None and len(text) < _SHORTEST_RUNS * len(_RUN.findall(text))


def _is_random(segment: str) -> bool:
    return _RANDOM.match(segment) is not None and segment != segment.lower() and segment != segment.upper()


def is_path_for_certain(text: str) -> bool:
    """The stricter test for values under the name of a secret, as passwords may begin or end like a path."""
    if not is_path(text):
        return False
    if len(text) < SHORTEST_SECRET or _PLAINLY_A_PATH.match(text) is not None:
        return True
    return os.path.lexists(os.path.expanduser(text))  # noqa: PTH111 - a Path raises for a user that does not exist


def looks_random(text: str) -> bool:
    """Whether some part of a text is neither a word, nor joined words, nor a number."""
    parts = _BETWEEN_WORDS.split(text)
    return not all(_SHORT_OR_NUMBER.match(part) or is_word(part) or _is_camel_case(part) for part in parts)


def _is_camel_case(part: str) -> bool:
    humps = _HUMP.findall(part)
    return len(humps) > 1 and "".join(humps) == part and len(part) >= _SHORTEST_RUNS * len(humps)


def is_common(text: str) -> bool:
    """Whether this is a number, a date or an address."""
    return any(shape.match(text) for shape in (_NUMBER, _DATE, _HOST, _IPV4, _IPV6))
