"""Tells the format of a file: text, with its encoding and line endings, a picture, or another known kind."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from typing import Final

HEAD_BYTES: Final = 8192

_PICTURES: Final[tuple[tuple[bytes, str], ...]] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_OTHERS: Final[tuple[tuple[bytes, str], ...]] = (
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (or a document made of one, like .docx, .xlsx or .jar)"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "gzip-compressed data"),
    (b"BZh", "bzip2-compressed data"),
    (b"\xfd7zXZ\x00", "xz-compressed data"),
    (b"\x28\xb5\x2f\xfd", "zstd-compressed data"),
    (b"7z\xbc\xaf\x27\x1c", "a 7-Zip archive"),
    (b"\x7fELF", "an ELF program or library"),
    (b"MZ", "a Windows program or library"),
    (b"\xcf\xfa\xed\xfe", "a macOS program or library"),
    (b"\xca\xfe\xba\xbe", "a Java class or a macOS program"),
    (b"\x00asm", "a WebAssembly module"),
    (b"SQLite format 3\x00", "an SQLite database"),
    (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an older Microsoft Office document"),
    (b"OggS", "Ogg audio or video"),
    (b"ID3", "MP3 audio"),
    (b"fLaC", "FLAC audio"),
    (b"wOFF", "a web font"),
    (b"wOF2", "a web font"),
    (b"II*\x00", "a TIFF image"),
    (b"MM\x00*", "a TIFF image"),
    (b"\x00\x00\x01\x00", "an icon"),
)
_MAY_BE_TEXT: Final = (b"BZh", b"MZ", b"ID3", b"OggS")
"""Text can begin with these too: they count only if the rest is no text."""
_WITH_NULS: Final = (b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")
"""Byte order marks of the encodings in which NUL bytes are part of text."""


@dataclass(frozen=True, slots=True)
class FileKind:
    """`picture` is the MIME type of a picture that clients can show; `binary` names anything else that is no text."""

    picture: str = ""
    binary: str = ""


def kind_of(head: bytes) -> FileKind:
    for magic, mime_type in _PICTURES:
        if head.startswith(magic):
            return FileKind(picture=mime_type)
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return FileKind(picture="image/webp")
    if head.startswith(_WITH_NULS):
        return FileKind()
    has_nul = b"\0" in head[:HEAD_BYTES]
    named = next((name for magic, name in _OTHERS if head.startswith(magic)), "")
    named = named or ("MP4 or HEIF media" if head[4:8] == b"ftyp" else "")
    if named and (has_nul or not head.startswith(_MAY_BE_TEXT)):
        return FileKind(binary=named)
    return FileKind(binary="binary data") if has_nul else FileKind()


def format_size(size_bytes: int) -> str:
    if size_bytes < 10_000:
        return "1 byte" if size_bytes == 1 else f"{size_bytes:,} bytes"
    return f"{size_bytes / 1000:,.0f} kB" if size_bytes < 10_000_000 else f"{size_bytes / 1_000_000:,.0f} MB"


_MARKS: Final[tuple[tuple[bytes, str], ...]] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


def encoding_of(head: bytes) -> tuple[str, bytes]:
    """The encoding that a byte order mark names, with the mark; UTF-8 if there is none."""
    for mark, encoding in _MARKS:
        if head.startswith(mark):
            return encoding, mark
    return "utf-8", b""


@dataclass(frozen=True, slots=True)
class TextFormat:
    """How a text file is written: its encoding, byte order mark and line endings."""

    encoding: str = "utf-8"
    mark: bytes = b""
    newline: str = "\n"

    @classmethod
    def of(cls, data: bytes) -> TextFormat:
        """`data` may be only the beginning of a file. The line ending is CRLF if it is that of most lines."""
        encoding, mark = encoding_of(data)
        text = data[len(mark) :].decode(encoding, "replace")
        crlf, all_ends = text.count("\r\n"), text.count("\n")
        return cls(encoding, mark, "\r\n" if crlf * 2 > all_ends else "\n")

    def decode(self, data: bytes) -> str:
        """Invalid bytes survive decoding and encoding."""
        return data[len(self.mark) :].decode(self.encoding, self._errors)

    def encode(self, text: str) -> bytes:
        text = text.removeprefix("\ufeff") if self.mark else text  # one mark is enough
        return self.mark + text.encode(self.encoding, self._errors)

    @property
    def _errors(self) -> str:
        return "surrogateescape" if self.encoding == "utf-8" else "surrogatepass"


def with_newlines(text: str, newline: str) -> str:
    """The same text with other line endings."""
    return text.replace("\r\n", "\n").replace("\n", newline)
