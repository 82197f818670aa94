"""A call's outcome as people read it: text as text, data as JSON, pictures as files, errors with what to do."""

from __future__ import annotations

import base64
import binascii
import json
import mimetypes
import re
import sys
from pathlib import Path
from typing import Any, Final, cast

import click
import msgspec

from trunkline.cli.terminal import plain
from trunkline.core.call import Failure, Outcome, RemoteError

_UNSAFE: Final = re.compile(r"[^A-Za-z0-9._-]+")
_CONTROL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
_MAX_TRIES: Final = 10_000


def show_outcome(outcome: Outcome, tool: str, *, as_json: bool, folder: Path) -> int:
    """Print it; the exit status: 0 where the tool did what it was asked."""
    if isinstance(outcome, Failure):
        return _show_failure(outcome, as_json=as_json)
    told = cast(dict[str, Any], msgspec.json.decode(outcome.raw))
    if isinstance(outcome, RemoteError):
        return _show_error(told, as_json=as_json)
    if as_json:
        click.echo(json.dumps(told, indent=2, ensure_ascii=False))
    else:
        _show_result(told, tool, folder)
    return 1 if told.get("isError") is True else 0


def _show_failure(outcome: Failure, *, as_json: bool) -> int:
    problem = outcome.problem
    if as_json:
        error = {"code": problem.code.jsonrpc, "message": problem.message, "data": problem.data()}
        click.echo(json.dumps({"error": error}, indent=2))
    else:
        _complain(f"{problem.code}: {problem.message}", problem.hint)
        if problem.executed == "unknown":
            click.echo("the tool may have run", err=True)
    return problem.code.exit or 1


def _show_error(error: dict[str, Any], *, as_json: bool) -> int:
    """A server's own error, or our gateway's with its code and hint inside."""
    if as_json:
        click.echo(json.dumps({"error": error}, indent=2, ensure_ascii=False))
        return 1
    data: Any = error.get("data")
    ours = cast(dict[str, Any], data) if isinstance(data, dict) else {}
    code = str(ours.get("code") or error.get("code", ""))
    _complain(f"{code}: {error.get('message', '')}", str(ours.get("hint") or ""))
    if ours.get("executed") == "unknown":
        click.echo("the tool may have run", err=True)
    elif data is not None and not ours.get("code"):
        click.echo(_printable(json.dumps(data, indent=2, ensure_ascii=False)), err=True)
    return 1


def _complain(message: str, hint: str) -> None:
    click.echo(f"{click.style('error', fg='red', bold=True)}: {plain(message)}", err=True)
    if hint:
        click.echo(f"{click.style('hint', fg='cyan')}: {plain(hint)}", err=True)


def _show_result(result: dict[str, Any], tool: str, folder: Path) -> None:
    failed = result.get("isError") is True
    content = cast(list[Any], result.get("content") or [])
    blocks = [cast(dict[str, Any], block) for block in content if isinstance(block, dict)]
    shown = False
    for number, block in enumerate(blocks, 1):
        shown = _show_block(block, f"{tool}-{number}", folder, failed=failed) or shown
    structured = result.get("structuredContent")
    if structured is not None and not _said_already(structured, blocks):
        click.echo(_printable(json.dumps(structured, indent=2, ensure_ascii=False)), err=failed)
    elif not shown and structured is None:
        click.echo("done: the tool returned nothing", err=True)


def _said_already(structured: object, blocks: list[dict[str, Any]]) -> bool:
    """Servers write the same as text too, for clients that do not know structured content."""
    for block in blocks:
        try:
            if json.loads(block.get("text", "")) == structured:
                return True
        except (ValueError, TypeError, RecursionError):
            continue
    return False


def _show_block(block: dict[str, Any], name: str, folder: Path, *, failed: bool) -> bool:
    kind, resource = block.get("type"), block.get("resource")
    if kind == "text":
        click.echo(_printable(str(block.get("text", ""))), err=failed)
    elif kind in ("image", "audio"):
        _save(block.get("data"), str(block.get("mimeType", "")), name, folder)
    elif kind == "resource_link":
        click.echo(f"{plain(str(block.get('name', '')))}: {plain(str(block.get('uri', '')))}")
    elif kind == "resource" and isinstance(resource, dict):
        inner = cast(dict[str, Any], resource)
        if "text" in inner:
            click.echo(_printable(str(inner["text"])))
        else:
            _save(inner.get("blob"), str(inner.get("mimeType", "")), name, folder)
    else:
        click.echo(_printable(json.dumps(block, indent=2, ensure_ascii=False)))
    return True


def _save(data: object, mime_type: str, name: str, folder: Path) -> None:
    try:
        content = base64.b64decode(str(data), validate=True)
        path = _write_new(folder, _UNSAFE.sub("_", name), mimetypes.guess_extension(mime_type) or ".bin", content)
    except binascii.Error:
        click.echo(f"{plain(mime_type)} that is not valid base64 was left out", err=True)
        return
    except OSError as error:
        click.echo(f"{plain(mime_type)} could not be saved: {error}", err=True)
        return
    click.echo(f"saved {path} ({plain(mime_type)}, {len(content):,} bytes)", err=True)


def _write_new(folder: Path, stem: str, extension: str, content: bytes) -> Path:
    """A file of a name that nothing had before."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, _MAX_TRIES):
        path = folder / f"{stem}{'' if number == 1 else f'-{number}'}{extension}"
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            continue
        return path
    raise FileExistsError(f"{folder} is full of files named {stem}")


def _printable(text: str) -> str:
    """On a terminal, without what it would obey; a file or program gets the text as it is."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text) if sys.stdout.isatty() else text
