"""The options that name a running gateway."""

from __future__ import annotations

import pytest

from trunkline.cli.options import mcp_url
from trunkline.core.errors import BAD_VALUE, GatewayError


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://127.0.0.1:4747", "http://127.0.0.1:4747/mcp"),
        ("http://127.0.0.1:4747/", "http://127.0.0.1:4747/mcp"),
        ("127.0.0.1:4747", "http://127.0.0.1:4747/mcp"),
        ("localhost:4747/mcp", "http://localhost:4747/mcp"),
        ("https://h/", "https://h/mcp"),
        ("http://[::1]:4747", "http://[::1]:4747/mcp"),
        ("http://h/mcp", "http://h/mcp"),
        ("http://h/behind/an/ingress?x=y", "http://h/behind/an/ingress?x=y"),
    ],
)
def test_scheme_and_path_may_be_left_out(text: str, expected: str) -> None:
    assert mcp_url(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", "foo", "ftp://h", "http://", "http://h:x", "http://h:99999", "http://[::1", "http://h/a b", "http://h/\n"],
)
def test_what_is_no_url_is_refused_with_a_hint(text: str) -> None:
    with pytest.raises(GatewayError) as refused:
        mcp_url(text)
    assert refused.value.problem.code is BAD_VALUE
    assert "http://127.0.0.1:4747/mcp" in refused.value.problem.hint
