"""The demo server `text`: exact work on text that models do badly."""

from __future__ import annotations

import difflib
import hashlib

from trunkline.demo.tools import INVALID_PARAMS, Json, completion, handshake_server, text_and_data, tool
from trunkline.mcpserver import Context, MethodError, ToolError

server = handshake_server(
    "trunkline-demo-text",
    "Exact work on text: counting, comparing, replacing, hashing. Prefer it to counting by eye.",
    title="Text",
    capabilities={"prompts": {}, "completions": {}},
)

# -- tools ------------------------------------------------------------------------------------------------------------

_LONGEST = 200_000
_LONGEST_LINES = 2_000  # comparing takes time that grows with the square of the lines
_ALGORITHMS = ["sha256", "sha1", "md5", "blake2b"]


def _text(description: str) -> Json:
    return {"type": "string", "maxLength": _LONGEST, "description": description}


@tool(
    server,
    "Count characters, words and lines",
    {"text": _text("Any text")},
    result={name: {"type": "integer"} for name in ("characters", "words", "lines")},
)
def count(arguments: Json) -> Json:
    """How many characters, words and lines a text has."""
    text = arguments["text"]
    counts = {"characters": len(text), "words": len(text.split()), "lines": len(text.splitlines())}
    return text_and_data(", ".join(f"{count} {what}" for what, count in counts.items()), counts)


@tool(server, "Reverse a text", {"text": _text("Any text")})
def reverse(arguments: Json) -> str:
    """A text backwards, character by character."""
    return arguments["text"][::-1]


@tool(server, "Compare two texts", {"before": _text("Any text"), "after": _text("Any text")})
def diff(arguments: Json) -> str:
    """What changed between two texts, line by line, as a unified diff."""
    before, after = arguments["before"].splitlines(), arguments["after"].splitlines()
    if max(len(before), len(after)) > _LONGEST_LINES:
        raise ToolError(f"Texts of up to {_LONGEST_LINES:,} lines can be compared")
    lines = difflib.unified_diff(before, after, "before", "after", lineterm="")
    return "\n".join(lines) or "The texts are the same"


@tool(
    server,
    "Find and replace",
    {
        "text": _text("Any text"),
        "find": _text("What to look for, taken literally"),
        "replacement": _text("What to put in its place"),
    },
    result={"text": {"type": "string"}, "replacements": {"type": "integer"}},
)
def replace(arguments: Json) -> Json:
    """A text with every occurrence of one piece replaced by another, and how many there were."""
    text, find, replacement = arguments["text"], arguments["find"], arguments["replacement"]
    if not find:
        raise ToolError("`find` is empty")
    count = text.count(find)
    if len(text) + count * (len(replacement) - len(find)) > _LONGEST:
        raise ToolError(f"The result would be longer than {_LONGEST:,} characters")
    replaced = text.replace(find, replacement)
    return text_and_data(replaced, {"text": replaced, "replacements": count})


@tool(
    server,
    "Hash a text",
    {
        "text": _text("Any text"),
        "algorithm": {
            "type": "string",
            "enum": _ALGORITHMS,
            "default": _ALGORITHMS[0],
            "description": "Which hash; md5 and sha1 are for comparing only",
        },
    },
)
def hash_(arguments: Json) -> str:
    """The hash of a text's UTF-8 bytes, in hexadecimal."""
    data = arguments["text"].encode("utf-8", "surrogatepass")
    return hashlib.new(arguments["algorithm"], data, usedforsecurity=False).hexdigest()


@tool(server, "Sign a letter", {"text": _text("The letter")})
async def sign_letter(arguments: Json, context: Context) -> str:
    """A text with the user's name below; the user is asked for it (elicitation)."""
    name = {"type": "string", "title": "Your name", "maxLength": 100}
    form = {"type": "object", "properties": {"name": name}, "required": ["name"]}
    answer = await context.elicit("Who signs the letter?", form)
    if answer is None:
        raise ToolError("There is no name to sign with: the client does not support elicitation, or its user declined")
    return f"{arguments['text']}\n\nYours, {answer.get('name', '')}"


# -- the prompt `proofread` -------------------------------------------------------------------------------------------

_DESCRIPTION = "Have a text corrected, with reasons."
_STYLES = ("plain", "formal", "friendly", "terse")


@server.method("prompts/list")
def list_prompts(params: Json) -> Json:
    arguments = [
        {"name": "text", "description": "What to read", "required": True},
        {"name": "style", "description": "The tone to use", "required": False},
    ]
    title = "Proofread a text"
    return {"prompts": [{"name": "proofread", "title": title, "description": _DESCRIPTION, "arguments": arguments}]}


@server.method("prompts/get")
def get_prompt(params: Json) -> Json:
    if params.get("name") != "proofread":
        raise MethodError(INVALID_PARAMS, f"Unknown prompt: {params.get('name')}")
    match params.get("arguments"):
        case {"text": text, **others}:
            style = others.get("style") or _STYLES[0]
        case _:
            raise MethodError(INVALID_PARAMS, "The argument `text` is missing")
    request = f"Proofread this text in a {style} style. Say what you changed, and why.\n\n{text}"
    message = {"role": "user", "content": {"type": "text", "text": request}}
    return {"description": _DESCRIPTION, "messages": [message]}


@server.method("completion/complete")
def complete(params: Json) -> Json:
    match params:
        case {"ref": {"type": "ref/prompt", "name": "proofread"}, "argument": {"name": name, **argument}}:
            return completion(_STYLES if name == "style" else (), argument.get("value", ""))
        case _:
            raise MethodError(INVALID_PARAMS, "There is no such prompt")
