"""The demo server `text`: what models do badly with text, done exactly."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Mapping

from trunkline.demo.library import Library, Prompt, PromptArgument
from trunkline.demo.talk import Talk
from trunkline.demo.toolbox import Answer, Arguments, Refusal, Tool, toolbox

_ALGORITHMS = ("sha256", "sha1", "md5", "blake2b")
_STYLES = ("plain", "formal", "friendly", "terse")
_LONGEST = 200_000
_LONGEST_LINES = 2_000  # comparing takes time that grows with the square of the lines
_TEXT = {"type": "string", "maxLength": _LONGEST, "description": "Any text"}


def _count(arguments: Arguments) -> Answer:
    text = arguments["text"]
    counts = {"characters": len(text), "words": len(text.split()), "lines": len(text.splitlines())}
    return Answer(", ".join(f"{count} {what}" for what, count in counts.items()), counts)


def _reverse(arguments: Arguments) -> Answer:
    return Answer(arguments["text"][::-1])


def _diff(arguments: Arguments) -> Answer:
    before, after = arguments["before"].splitlines(), arguments["after"].splitlines()
    if max(len(before), len(after)) > _LONGEST_LINES:
        raise Refusal(f"Texts of up to {_LONGEST_LINES:,} lines can be compared")
    lines = difflib.unified_diff(before, after, "before", "after", lineterm="")
    return Answer("\n".join(lines) or "The texts are the same")


def _replace(arguments: Arguments) -> Answer:
    text, find, replacement = arguments["text"], arguments["find"], arguments["replacement"]
    if not find:
        raise Refusal("`find` is empty")
    count = text.count(find)
    if len(text) + count * (len(replacement) - len(find)) > _LONGEST:
        raise Refusal(f"The result would be longer than {_LONGEST:,} characters")
    replaced = text.replace(find, replacement)
    return Answer(replaced, {"text": replaced, "replacements": count})


def _hash(arguments: Arguments) -> Answer:
    data = arguments["text"].encode("utf-8", "surrogatepass")
    return Answer(hashlib.new(arguments["algorithm"], data, usedforsecurity=False).hexdigest())


def _letter(arguments: Arguments, talk: Talk) -> Answer:
    form = {
        "type": "object",
        "properties": {"name": {"type": "string", "title": "Your name", "maxLength": 100}},
        "required": ["name"],
    }
    answer = talk.ask("Who signs the letter?", form)
    if answer is None:
        raise Refusal("Nobody said who signs; a client that takes questions (elicitation) would have asked its user")
    return Answer(f"{arguments['text']}\n\nYours, {answer.get('name', '')}")


def _proofread(arguments: Mapping[str, str]) -> str:
    style = arguments.get("style") or _STYLES[0]
    return f"Proofread this text in a {style} style. Say what you changed, and why.\n\n{arguments['text']}"


TEXT = toolbox(
    "text",
    "Text",
    "Exact work on text: counting, comparing, replacing, hashing. Prefer it to counting by eye.",
    Tool(
        "count",
        "Count characters, words and lines",
        "How many characters, words and lines a text has.",
        _count,
        {"text": _TEXT},
        result={name: {"type": "integer"} for name in ("characters", "words", "lines")},
    ),
    Tool("reverse", "Reverse a text", "A text backwards, character by character.", _reverse, {"text": _TEXT}),
    Tool(
        "diff",
        "Compare two texts",
        "What changed between two texts, line by line, as a unified diff.",
        _diff,
        {"before": _TEXT, "after": _TEXT},
    ),
    Tool(
        "replace",
        "Find and replace",
        "A text with every occurrence of one piece replaced by another, and how many there were.",
        _replace,
        {
            "text": _TEXT,
            "find": {"type": "string", "maxLength": _LONGEST, "description": "What to look for, taken literally"},
            "replacement": {"type": "string", "maxLength": _LONGEST, "description": "What to put in its place"},
        },
        result={"text": {"type": "string"}, "replacements": {"type": "integer"}},
    ),
    Tool(
        "hash",
        "Hash a text",
        "The hash of a text's UTF-8 bytes, in hexadecimal.",
        _hash,
        {
            "text": _TEXT,
            "algorithm": {
                "type": "string",
                "enum": list(_ALGORITHMS),
                "default": _ALGORITHMS[0],
                "description": "Which hash; md5 and sha1 are for comparing only",
            },
        },
    ),
    Tool(
        "sign_letter",
        "Sign a letter",
        "A text with the user's name below; the user is asked for it (elicitation).",
        _letter,
        {"text": {"type": "string", "maxLength": _LONGEST, "description": "The letter"}},
        talks=True,
    ),
)

TEXT_LIBRARY = Library(
    prompts=[
        Prompt(
            "proofread",
            "Proofread a text",
            "Have a text corrected, with reasons.",
            _proofread,
            {
                "text": PromptArgument("What to read"),
                "style": PromptArgument("How it is to sound", required=False, words=_STYLES),
            },
        )
    ]
)
