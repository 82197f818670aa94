"""How a text file is written: its encoding, its byte order mark, its line endings. Changing it leaves these alone."""

from __future__ import annotations

import codecs
import re
from dataclasses import dataclass
from typing import Final

_MARKS: Final[tuple[tuple[bytes, str], ...]] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
_MARK: Final = "\ufeff"
_LINE_END: Final = re.compile(r"\r?\n")


def encoding_of(head: bytes) -> tuple[str, bytes]:
    """The encoding that a byte order mark names, with the mark; UTF-8 where there is none."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding, mark
    return "utf-8", b""


@dataclass(frozen=True, slots=True)
class TextStyle:
    encoding: str = "utf-8"
    mark: bytes = b""
    newline: str = "\n"

    @classmethod
    def of(cls, data: bytes) -> TextStyle:
        """`data` may be the beginning of a file only. Lines end in CRLF where most of those seen do."""
        encoding, mark = encoding_of(data)
        text = data[len(mark) :].decode(encoding, "replace")
        crlf, all_ends = text.count("\r\n"), text.count("\n")
        return cls(encoding, mark, "\r\n" if crlf * 2 > all_ends else "\n")

    def decode(self, data: bytes) -> str:
        """Bytes that are no valid text survive the way there and back."""
        return data[len(self.mark) :].decode(self.encoding, self._errors)

    def encode(self, text: str) -> bytes:
        words = text.removeprefix(_MARK) if self.mark else text  # one mark is enough
        return self.mark + words.encode(self.encoding, self._errors)

    @property
    def _errors(self) -> str:
        return "surrogateescape" if self.encoding == "utf-8" else "surrogatepass"


def with_newlines(text: str, newline: str) -> str:
    """The same text with all its lines ending in this way."""
    return _LINE_END.sub(newline, text)
