"""Prints the outcome of a call: text as text, data as JSON, images and audio as files, errors with a hint."""

from __future__ import annotations

import base64
import json
import mimetypes
import re
from pathlib import Path
from typing import Any, Final, cast

import click
import msgspec

from trunkline.cli.terminal import echo_data, json_text, plain, print_error
from trunkline.core.call import Failure, NeedsInput, Outcome, RemoteError
from trunkline.core.errors import CODES, UNKNOWN_TOOL, Problem
from trunkline.protocol.jsonrpc import BadMessage, Members, members_of

_FAILED: Final = 1
_NO_SUCH_TOOL: Final = "`trunkline tools` lists all tools, `trunkline explain --tool NAME` says why one is missing"


def show_outcome(outcome: Outcome, tool: str, *, as_json: bool, folder: Path) -> int:
    """Print an outcome. Returns the exit status, which is 0 if the tool succeeded."""
    raw = _error_of(outcome.problem) if isinstance(outcome, Failure) else bytes(outcome.raw)
    try:
        members = members_of(raw, "the response")
    except BadMessage as error:
        print_error(f"The response cannot be read: {error}")
        return _FAILED
    if isinstance(outcome, Failure | RemoteError):
        return _show_error(raw, members, as_json=as_json)
    if as_json:
        echo_data(json_text(raw))
        return _FAILED if _is_true(members, "isError") else 0
    if isinstance(outcome, NeedsInput) or _value(members, "resultType") == "input_required":
        print_error("The tool asks for input, which this command cannot give", "`--json` shows what it asks for")
        return _FAILED
    return _show_result(members, tool, folder)


# -- errors -----------------------------------------------------------------------------------------------------------


def _error_of(problem: Problem) -> bytes:
    """A failure as the JSON-RPC error that a gateway sends for it."""
    return msgspec.json.encode({"code": problem.code.jsonrpc, "message": problem.message, "data": problem.data()})


def _show_error(raw: bytes, error: Members, *, as_json: bool) -> int:
    """Print a server's own error, or a gateway's with its code and hint inside."""
    if as_json:
        echo_data(json_text(b'{"error":%b}' % raw))
        return _FAILED
    data = _value(error, "data")
    details = cast(dict[str, Any], data) if isinstance(data, dict) and cast(Any, data).get("code") in CODES else {}
    code = str(details.get("code") or _value(error, "code") or "")
    # what helps in a shell is not always what helps a program
    hint = _NO_SUCH_TOOL if code == UNKNOWN_TOOL.id else str(details.get("hint") or "")
    print_error(f"{code}: {_value(error, 'message') or 'the server gives no reason'}", hint)
    if details.get("executed") == "unknown":
        click.echo("the tool may have run", err=True)
    if not details and "data" in error:
        echo_data(json_text(bytes(error["data"])), err=True)
    return _FAILED


# -- results ----------------------------------------------------------------------------------------------------------


def _show_result(result: Members, tool: str, folder: Path) -> int:
    failed = _is_true(result, "isError")
    structured = result.get("structuredContent")
    try:
        content = msgspec.json.decode(result.get("content", b"[]"), type=list[msgspec.Raw])
    except msgspec.MsgspecError:
        content = [result["content"]]
    blocks = [block for block in content if not _repeats(block, structured)]
    complete = True
    for number, block in enumerate(blocks, 1):
        complete = _show_block(block, f"{tool}-{number}", folder, failed=failed) and complete
    if structured is not None:
        echo_data(json_text(bytes(structured)), err=failed)
    elif not blocks:
        click.echo("the tool failed without saying why" if failed else "done: the tool returned nothing", err=True)
    return _FAILED if failed or not complete else 0


def _repeats(block: msgspec.Raw, structured: msgspec.Raw | None) -> bool:
    """Whether a block is the structured content as text, which servers add for older clients."""
    if structured is None:
        return False
    try:
        return json.loads(_block(block).get("text", "")) == json.loads(bytes(structured))
    except (ValueError, TypeError, RecursionError):
        return False


def _block(raw: msgspec.Raw) -> dict[str, Any]:
    """Decode a content block; empty if it is not an object."""
    try:
        return msgspec.json.decode(raw, type=dict[str, Any])
    except (msgspec.MsgspecError, RecursionError):
        return {}


def _show_block(raw: msgspec.Raw, name: str, folder: Path, *, failed: bool) -> bool:
    """Print or save a content block. Returns False if part of it is lost."""
    block = _block(raw)
    kind, mime_type = block.get("type"), str(block.get("mimeType") or "")
    if kind == "text" and isinstance(block.get("text"), str):
        echo_data(block["text"], err=failed)
    elif kind in ("image", "audio"):
        return save(block.get("data"), mime_type or kind, name, folder) is not None
    elif kind == "resource_link" and block.get("uri"):
        echo_data(plain(str(block["uri"])))
        about = [str(block.get(key)) for key in ("title", "name", "description") if block.get(key)]
        if about:
            click.echo(f"  {plain(': '.join(dict.fromkeys(about)))}", err=True)
    elif kind == "resource" and isinstance(block.get("resource"), dict):
        resource = cast(dict[str, Any], block["resource"])
        if "blob" in resource:
            return save(resource["blob"], str(resource.get("mimeType") or "a resource"), name, folder) is not None
        echo_data(str(resource.get("text", "")), err=failed)
    else:
        echo_data(json_text(bytes(raw)), err=failed)
    return True


def _value(members: Members, name: str) -> Any:
    """Decode a member; None if it is missing or malformed."""
    try:
        return msgspec.json.decode(members[name]) if name in members else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def _is_true(members: Members, name: str) -> bool:
    return bytes(members.get(name, b"")) == b"true"


# -- saving images and audio as new files -----------------------------------------------------------------------------

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST_STEM: Final = 100
_MAX_TRIES: Final = 10_000
_EXTENSIONS: Final = {
    "application/json": ".json",
    "application/pdf": ".pdf",
    "audio/aac": ".aac",
    "audio/flac": ".flac",
    "audio/mp3": ".mp3",
    "audio/mp4": ".m4a",
    "audio/mpeg": ".mp3",
    "audio/ogg": ".ogg",
    "audio/wav": ".wav",
    "audio/webm": ".weba",
    "audio/x-wav": ".wav",
    "image/avif": ".avif",
    "image/gif": ".gif",
    "image/jpeg": ".jpg",
    "image/png": ".png",
    "image/svg+xml": ".svg",
    "image/webp": ".webp",
}
"""Fixed here because the tables of systems differ."""


def save(data: object, mime_type: str, name: str, folder: Path) -> Path | None:
    """Write base64 text to a new file, and print its path on stderr, or why it could not be saved."""
    try:
        content = base64.b64decode(data if isinstance(data, str) else "?", validate=True)
        path = _write_new(folder, file_stem(name), extension_of(mime_type), content)
    except ValueError:
        print_error(f"{mime_type} is not valid base64 and was not saved")
        return None
    except OSError as error:
        place = f": `{error.filename}`" if error.filename else ""
        print_error(f"{mime_type} could not be saved{place}: {error.strerror or error}")
        return None
    click.echo(f"saved {plain(str(path))} ({plain(mime_type)}, {len(content):,} bytes)", err=True)
    return path


def file_stem(name: str) -> str:
    """A file name made from any text; never a path, a hidden file or something like a command's option."""
    return _UNSAFE.sub("_", name)[:_LONGEST_STEM].lstrip(".-") or "result"


def extension_of(mime_type: str) -> str:
    kind = mime_type.partition(";")[0].strip().lower()
    return _EXTENSIONS.get(kind) or mimetypes.guess_extension(kind) or ".bin"


def _write_new(folder: Path, stem: str, extension: str, content: bytes) -> Path:
    """Write to a file that did not exist before."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, _MAX_TRIES):
        path = folder / f"{stem}{'' if number == 1 else f'-{number}'}{extension}"
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"`{folder}` is full of files named `{stem}`")
