"""Images and sound of a result, saved as files: always new ones, always in the folder that was asked for."""

from __future__ import annotations

import base64
import mimetypes
import re
from pathlib import Path
from typing import Final

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
"""The same on every machine; the table of the system knows more, and less."""


class NotSaved(Exception):
    """Why there is no file."""


def save(data: object, mime_type: str, name: str, folder: Path) -> tuple[Path, int]:
    """Write base64 text into a new file; its path and size. Raises NotSaved."""
    try:
        content = base64.b64decode(data if isinstance(data, str) else "?", validate=True)
        path = _write_new(folder, file_stem(name), extension_of(mime_type), content)
    except ValueError:
        raise NotSaved("is not valid base64 and was left out") from None
    except OSError as error:
        place = f": `{error.filename}`" if error.filename else ""
        raise NotSaved(f"could not be saved{place}: {error.strerror or error}") from None
    return path, len(content)


def file_stem(name: str) -> str:
    """A name made from any text, that is no path, no hidden file and no option of a command."""
    return _UNSAFE.sub("_", name)[:_LONGEST_STEM].lstrip(".-") or "result"


def extension_of(mime_type: str) -> str:
    kind = mime_type.partition(";")[0].strip().lower()
    return _EXTENSIONS.get(kind) or mimetypes.guess_extension(kind) or ".bin"


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
    raise FileExistsError(f"`{folder}` is full of files named `{stem}`")
