"""Measures and cuts texts in UTF-16 code units, as clients do, and makes names of files printable."""

from __future__ import annotations


def units(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2


def first_units(text: str, most: int) -> str:
    """The beginning of a text, without half a character at its end."""
    if text.isascii():
        return text[:most]
    return text.encode("utf-16-le", "surrogatepass")[: 2 * most].decode("utf-16-le", "ignore")


def last_units(text: str, most: int) -> str:
    if text.isascii():
        return text[-most:]
    return text.encode("utf-16-le", "surrogatepass")[-2 * most :].decode("utf-16-le", "ignore")


def printable(name: str) -> str:
    """A file name without control characters or line breaks."""
    if name.isprintable():
        return name
    plain = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in plain)
