"""What happens in an embedded gateway reaches the program's own logging."""

from __future__ import annotations

import logging

import pytest

from trunkline.core.errors import LITERAL_SECRET, Problem
from trunkline.core.events import Events
from trunkline.core.source import Health
from trunkline.gateway.library.embedded import StandardLog
from trunkline.telemetry.redaction import Redactor


@pytest.mark.law
def test_levels_are_those_of_logging_and_secrets_stay_out(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "trunkline")
    events = Events()
    log = StandardLog(events, Redactor(["hunter2222"]))
    events.health_changed("a", Health(state="ready"))
    events.health_changed("a", Health(state="down", reason="said hunter2222"))
    events.note("error", "internal", "broken")
    log.warn([Problem(code=LITERAL_SECRET, message="written out")])
    logged = [(record.name, record.levelname, record.getMessage()) for record in caplog.records]
    assert logged == [
        ("trunkline", "INFO", "a is ready"),
        ("trunkline", "WARNING", "a is down: said ***"),
        ("trunkline", "ERROR", "broken"),
        ("trunkline", "WARNING", "TL121: written out"),
    ]
