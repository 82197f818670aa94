"""The fixed texts, picture and sound that the conformance backend answers with."""

from __future__ import annotations

import base64
import io
import wave
from typing import Any

Content = dict[str, Any]

RED_PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mP8z8DwHwAFBQIAX8jx0gAAAABJRU5ErkJggg=="


def silence() -> str:
    """A few samples of nothing, as a WAV file in base64."""
    file = io.BytesIO()
    with wave.open(file, "wb") as sound:
        sound.setnchannels(1)
        sound.setsampwidth(1)
        sound.setframerate(8000)
        sound.writeframes(b"\x80" * 8)
    return base64.b64encode(file.getvalue()).decode()


def text(words: str) -> Content:
    return {"type": "text", "text": words}


def image() -> Content:
    return {"type": "image", "data": RED_PIXEL, "mimeType": "image/png"}


def audio() -> Content:
    return {"type": "audio", "data": silence(), "mimeType": "audio/wav"}


def embedded(uri: str, words: str, mime_type: str = "text/plain") -> Content:
    return {"type": "resource", "resource": {"uri": uri, "mimeType": mime_type, "text": words}}


def answer(*content: Content, error: bool = False) -> dict[str, Any]:
    """A tool's result."""
    return {"content": list(content), **({"isError": True} if error else {})}
