"""How long a text is to those who cut long ones: clients count in units of UTF-16, in which an emoji is two.

And names of files as text of one line, which are anything that a file may be called.
"""

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
    """A name in one line, whatever its file is called."""
    if name.isprintable():
        return name
    plain = name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in plain)
