from __future__ import annotations

from trunkline.core.call import Cached, Failure, NeedsInput, RemoteError, Result
from trunkline.core.errors import DEADLINE, Problem
from trunkline.telemetry.outcome import outcome_word


def test_every_way_to_end_has_a_word():
    assert outcome_word(Result(b'{"isError":true}')) == "ok"
    assert outcome_word(Cached(b"{}")) == "cached"
    assert outcome_word(RemoteError(b"{}")) == "error"
    assert outcome_word(NeedsInput(b"{}")) == "input_required"
    assert outcome_word(Failure(Problem(code=DEADLINE, message="too late"))) == "TL305"
