"""Which values are secret: the one rule for everything that hides secrets by their value.

A secret is a value from `${…}`, an `envFile` or the inherited environment, a value whose key is named like a secret, a
credential by its look, and what a URL carries besides its place: user, password, query values, and a segment of its
path that nobody would make up. Never a path, a single word, or less than eight characters: to hide those would make
the log unreadable, and give them away where they are hidden.
"""

from __future__ import annotations

import re
from base64 import urlsafe_b64decode
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final, cast
from urllib.parse import unquote_plus

SHORTEST_SECRET: Final = 8
_LONGEST_NAME: Final = 200
_WHOLE_WORDS: Final = r"pats?|(?:proxy-)?authorization|o?auth2?|jwts?|cookies?|bearer|psk|creds?"
_ENDINGS: Final = r"keys?|tokens?|secrets?|pass|passw(?:or)?ds?|passphrases?|passcodes?|pwds?|pw|credentials?|basicauth"
"""Words that others are joined to without a border: PGPASSWORD, SASKEY, LDAP_BINDPW."""
NAME_WORDS: Final = rf"(?i:{_WHOLE_WORDS}|{_ENDINGS})"
_BORDER: Final = r"(?:^|[_.\s-]|(?<=[a-z0-9])(?=[A-Z]))"
# the word must end the name, but for what tells one of several: GITHUB_TOKEN, API_TOKEN_PROD and accessKey hold a
# secret, TOKEN_LIMIT does not
_TAIL: Final = r"(?i:[_-]?(?:v?\d+(?!\d)|base|pem|b64|hex|json|value|prod|production|staging|dev|test|live|r[ow]))*\Z"
_SECRET_NAME: Final = re.compile(
    rf"""
    (?:{_BORDER}(?i:{_WHOLE_WORDS})|(?i:{_ENDINGS})){_TAIL}
    | (?i:{_BORDER}api_key_(?!file|path|name|header|env|id|in|url|var|prefix|type|required|enabled|location)[a-z\d]+\Z)
    """,
    re.VERBOSE,
)
_ORDINARY_NAME: Final = re.compile(
    rf"""
    (?: (?i:(?:mon|don|tur|hoc|joc|whis|lac|flun|turn|hot)keys?)
    | (?i:(?:com|by|sur|tres|over|under|low|high|band|sub|multi|ask)pass)
    | (?:^|[_.\s-]) (?i:(?:sort|primary|partition|foreign|public|pub|config|cache)[_.-]?keys?)
    | \A (?i:no|disable|without|skip) [_-] .*
    | {_BORDER} (?: (?i:max|min|num)(?:[_.\s-].*)? | (?:[Mm]ax|[Mm]in|[Nn]um)[A-Z].* ) (?i:tokens)
    | {_BORDER} (?i:(?:input|output|prompt|completion|context|thinking|reasoning|budget|total|stop|special)
        [_.\s-]?tokens)
    ) {_TAIL}""",
    re.VERBOSE,
)
"""Words that end like one of the above, keys that name something or are for everybody, tokens that are counted or are
parts of a text, and switches that turn it off."""
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
_ASSIGNED: Final = re.compile(r"""(?<![\w.-])([A-Za-z-][\w.-]*)\\?["']?\s*[=:]\s*\[?\\?["']?""")
_ASSIGNED_VALUE: Final = re.compile(
    r"""(?:(?:Bearer|Basic|Token|Bot|ApiKey)\s+)?((?!-----BEGIN)[^\s"'&;,\\{}]+)""", re.IGNORECASE
)
_WHOLLY_ASSIGNED: Final = re.compile(r"(-{0,2}[A-Za-z][\w.-]*)\s*[=:]\s*(.+)\Z", re.DOTALL)
_COMMAND: Final = re.compile(r"\w+=\S+\s.*\s-", re.DOTALL)
"""A variable is set for a command, whose options follow."""
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
"""Long, with letters, and with digits in more than one place."""
_BETWEEN_SEGMENTS: Final = re.compile(r"[/;]|(?<=[^=/])=(?=[^=/])")
_LETTERS: Final = re.compile(r"[A-Za-z\d]{16,}={0,2}\Z")
_RUN: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|\d+")
_SHORTEST_RUNS: Final = 2.6
"""Words that were joined have more letters each, those of a random text about two in a row of one case."""
_SLASH_IN_PASSWORD: Final = re.compile(r"://[^/\s:@]{1,256}:(?!\d{1,5}/)([^\s@\"'<>]{1,256})@")
_PASSWORD_OF_GO: Final = re.compile(r"(?<![\w.-])[\w.-]{1,256}:([^\s@]{1,256})@(?:tcp|unix)\(")
"""As Go names a database: `user:password@tcp(host:port)/name`."""

# -- what is no secret ------------------------------------------------------------------------------------------------

_PATH: Final = re.compile(r"(?:~[\w.-]*|\.{1,2}|[A-Za-z]:|)[/\\]")
_FROM_A_PLACE: Final = re.compile(r"(?:~[\w.-]*|\.{1,2}|[A-Za-z]:)[/\\]|/(?:[A-Z]?[a-z]+\d*|[A-Z]+)/")
"""How a path begins that has more to it than one name: in it folders may be called anything."""
_FILE: Final = re.compile(
    r"(?:[\w.@-]+/)*[\w@-][\w.@-]*\.(?:json|pem|key|crt|cer|p12|pfx|jks|ya?ml|toml|ini|txt|env|db|sqlite)\Z"
)
_SLASHED_KEY: Final = re.compile(
    r"/(?!(?:[A-Z]?[a-z]+\d*|[A-Z]+)(?:/|\Z))(?=[^a-z]*[a-z])(?=[^A-Z]*[A-Z])[A-Za-z0-9+/]{15,}={0,2}\Z"
)
"""Nothing but base64 in both cases, and what would be its first folder is not called by one word, as those of systems
are. In a path there is often a dot, a hyphen or an underscore too."""
_SEGMENT_BORDER: Final = re.compile(r"[/\\:;]")
_NUMBERS: Final = re.compile(r"[-+]?\d[\d\s.,:/_TZ+-]*\Z")
_HOST: Final = re.compile(r"(?:[a-z0-9-]+\.)+[a-z]{2,}(?::\d{1,5})?\Z|[a-z0-9-]+:\d{1,5}\Z")
_IPV6: Final = re.compile(r"\[?(?:[0-9a-f]{0,4}:){2,7}[0-9a-f.]*(?:\]:\d{1,5}|\])?\Z", re.IGNORECASE)
_SEGMENT: Final = r"(?:[A-Z]?[a-z]+|[A-Z]+)(?:[_.-](?:[A-Z]?[a-z]+|[A-Z]+|\d+))*"
_RELATIVE_PATH: Final = re.compile(rf"@?{_SEGMENT}(?:/{_SEGMENT})+(?:@[\w.-]+|/)?\Z")
_ONE_CASE: Final = re.compile(r"(?:[A-Z]?[a-z]+|[A-Z]+)\Z")
_LONGEST_WORD: Final = 20
_PAIRS: Final = (
    "abcdfgiklmnprstuvwy baeilorsu cacehiklorstuy dadeilorsuy eabcdefgilmnopqrstuvwxy faefilortu "
    "gaeghilnorsu haeiortuy iabcdefglmnoprstvz jaeou keis ladeilostuy mabeimopsu nacdefgiknostuvy "
    "oabcdfgiklmnoprstuvwy paehiloprstu qu racdefgiklmnoprstuvy sacehiklmopstuwy tacehilorstuy "
    "uabcdegilmnprst vaeio waehinos xcipt yeimos ze"
)
_FOLLOWERS: Final = {letters[0]: frozenset(letters[1:]) for letters in _PAIRS.split()}
"""The letters that follow each letter in English words, the rare pairs left out."""
_SEAMS: Final = 1
"""Rare pairs in one word: where two words were joined (`workflow`), but not what random letters have."""


def is_secret_name(name: str) -> bool:
    """Whether a variable, header or option of this name usually holds a secret."""
    name = name.lstrip("-")[-_LONGEST_NAME:]  # what stands before `=` in a text may be anything
    return _SECRET_NAME.search(name) is not None and _ORDINARY_NAME.search(name) is None


def may_be_secret(value: str) -> bool:
    """Whether a value can be a secret at all, wherever it comes from."""
    return len(value) >= SHORTEST_SECRET and not is_path(value) and not _is_word(value)


def secrets_in(name: str, value: object, *, from_outside: bool = False) -> Iterator[str]:
    """The secrets in the value of a key, however deep. `from_outside` are values from `${…}` or an `envFile`."""
    if isinstance(value, Mapping):
        named = is_secret_name(name)
        for key, inner in cast(Mapping[str, object], value).items():
            yield from secrets_in(name if named else key, inner, from_outside=from_outside)
    elif isinstance(value, list | tuple):
        yield from _in_list(name, cast(Sequence[object], value))
    elif isinstance(value, str) or (isinstance(value, int) and not isinstance(value, bool)):
        yield from filter(may_be_secret, _in_text(name, str(value), from_outside))


def secrets_in_environment(environ: Mapping[str, str], inherited: Sequence[str] | str = ()) -> Iterator[str]:
    """The secrets among variables. Those that are inherited by name are as good as a `${…}`; where all are, those with
    a value that nobody would make up."""
    for name, value in environ.items():
        listed = not isinstance(inherited, str) and name in inherited
        random = isinstance(inherited, str) and _RANDOM.match(value) is not None
        yield from secrets_in(name, value, from_outside=listed or random)


def _in_list(name: str, values: Sequence[object]) -> Iterator[str]:
    """In arguments a value may stand after its option: `--token VALUE`."""
    option = name
    for value in values:
        is_option = isinstance(value, str) and _OPTION.match(value) is not None
        yield from secrets_in("" if is_option else option, value)
        option = value if isinstance(value, str) and value.startswith("-") and "=" not in value else name


def _in_text(name: str, text: str, from_outside: bool) -> Iterator[str]:
    text = text.strip()
    if _URL.fullmatch(text) is None and (is_secret_name(name) or (from_outside and not is_common(text))):
        yield text
        yield _SCHEME_OF_HEADER.sub("", text, count=1)
    for credential in CREDENTIAL.finditer(text):
        yield _SCHEME_OF_HEADER.sub("", credential.group(), count=1).strip(":/@")
    yield from _assigned(text)
    for basic in _BASIC.finditer(text):
        yield from user_and_password(basic[1])
    for password in (*_SLASH_IN_PASSWORD.finditer(text), *_PASSWORD_OF_GO.finditer(text)):
        yield password[1]
    for url in _URL.finditer(text):
        yield from _in_url(url)


def _assigned(text: str) -> Iterator[str]:
    """What is given to a name inside a text: `--token …`, `--token=…`, `Authorization: …`, a member of JSON."""
    for option in _AFTER_OPTION.finditer(text):
        if is_secret_name(option[1]):
            yield option[2] or option[3] or option[4]
    whole = _WHOLLY_ASSIGNED.match(text)
    if whole is not None and is_secret_name(whole[1]) and not _URL.match(whole[2]) and not _COMMAND.match(text):
        yield whole[2]
    assigned = _ASSIGNED.search(text)
    while assigned is not None:
        at = assigned.end()
        value = _ASSIGNED_VALUE.match(text, at) if is_secret_name(assigned[1]) else None
        if value is not None and _URL.match(value[1]) is None:
            yield value[1]
            at = value.end()
        assigned = _ASSIGNED.search(text, at)


def user_and_password(basic: str) -> tuple[str, ...]:
    """What a word after `Basic` in a header stands for; nothing where it is just a word."""
    try:
        pair = urlsafe_b64decode(basic.replace("+", "-").replace("/", "_").rstrip("=") + "==").decode()
    except ValueError:
        return ()
    _, colon, password = pair.partition(":")
    return (pair, password) if colon and pair.isprintable() else ()


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
    """Some keys in base64 begin with a slash: what no folder is called is no path."""
    if _FILE.match(text) is not None:
        return True
    if _PATH.match(text) is None or _SLASHED_KEY.match(text) is not None:
        return False
    return _FROM_A_PLACE.match(text) is not None or not any(map(_is_jumble, _SEGMENT_BORDER.split(text)))


def _is_mixed(text: str) -> bool:
    """Long, without digits in two places, and no words that were joined."""
    return _LETTERS.match(text) is not None and len(text) < _SHORTEST_RUNS * len(_RUN.findall(text))


def _is_jumble(segment: str) -> bool:
    return _RANDOM.match(segment) is not None and segment != segment.lower() and segment != segment.upper()


def _is_word(text: str) -> bool:
    if len(text) > _LONGEST_WORD or _ONE_CASE.match(text) is None:
        return False
    word = text.lower()
    rare = sum(second not in _FOLLOWERS[first] for first, second in pairwise(word))
    return rare <= _SEAMS


def is_common(text: str) -> bool:
    """What settings are besides words: numbers, dates, addresses, the path of a file from some folder."""
    return any(shape.match(text) for shape in (_NUMBERS, _HOST, _IPV6, _RELATIVE_PATH))
