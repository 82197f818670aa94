from __future__ import annotations

from trunkline.core.tool import ToolDefinition
from trunkline.search.finder import ToolPatterns

SEND = ToolDefinition("mail", "send", b"{}")


def test_a_pattern_fits_the_address_or_the_name_that_clients_see():
    assert ToolPatterns(["mail.*"]).fit(SEND, "mail_send")
    assert ToolPatterns(["mail_s?nd"]).fit(SEND, "mail_send")
    assert ToolPatterns(["other", "post"]).fit(SEND, "post")
    assert not ToolPatterns(["mail", "send", "Mail.*", "mail_*"]).fit(SEND, None)


def test_a_pattern_has_to_fit_the_whole_name():
    assert not ToolPatterns(["mail_sen", "ail_send"]).fit(SEND, "mail_send")
    assert not ToolPatterns(["mail_send"]).fit(SEND, "mail_send\n")


def test_no_pattern_fits_nothing():
    assert not ToolPatterns([]).fit(SEND, "mail_send")
