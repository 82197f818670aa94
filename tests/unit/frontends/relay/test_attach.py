"""What may stand in the address and the token of a gateway."""

from __future__ import annotations

import pytest

from trunkline.core.errors import GatewayError
from trunkline.frontends.relay.attach import check_target
from trunkline.runtime.http_client import Target


@pytest.mark.law
def test_an_address_that_cannot_be_asked_is_refused_without_what_is_secret_in_it() -> None:
    with pytest.raises(GatewayError) as refused:
        check_target(Target("http://user:pw@h:1/mcp/ü?key=k3y"), "")
    assert "http://h:1/mcp/ü is not an address" in refused.value.problem.message
    assert "pw" not in str(refused.value.problem)
    assert "k3y" not in str(refused.value.problem)


@pytest.mark.law
@pytest.mark.parametrize("token", ["two words", "line\nbreak", "ü", "nul\0"])
def test_a_token_that_cannot_be_shown_is_refused_and_not_repeated(token: str) -> None:
    with pytest.raises(GatewayError) as refused:
        check_target(Target("http://h:1/mcp"), token)
    assert token not in str(refused.value.problem)
