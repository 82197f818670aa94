from __future__ import annotations

import pytest

from trunkline.runtime.children import child_environment

pytestmark = pytest.mark.law

SECRETS = {"TRUNKLINE_TOKEN": "t1", "TRUNKLINE_OPERATOR_TOKEN": "t2", "TRUNKLINE_ANYTHING": "t3"}


def test_the_short_list_is_passed_and_nothing_else():
    passed = {
        "PATH": "/bin",
        "HOME": "/home/x",
        "LANG": "C",
        "LC_ALL": "C",
        "LC_TIME": "C",
        "TERM": "dumb",
        "TMPDIR": "/t",
        "TZ": "UTC",
        "USER": "x",
        "LOGNAME": "x",
        "SHELL": "/bin/sh",
        "http_proxy": "http://p",
        "HTTPS_PROXY": "http://p",
        "no_proxy": "localhost",
        "ALL_PROXY": "socks5://p",
    }
    kept_back = {
        "AWS_SECRET_ACCESS_KEY": "s",
        "OPENAI_API_KEY": "s",
        "PYTHONPATH": "/x",
        "LD_PRELOAD": "/x",
        "LCX": "x",
    }
    assert child_environment(passed | kept_back, extra={}, inherit=()) == passed


def test_what_inherit_names_is_passed_and_missing_names_are_left_out():
    parent = {"PATH": "/bin", "API_KEY": "k", "OTHER": "o"}
    assert child_environment(parent, extra={}, inherit=["API_KEY", "NOT_SET"]) == {"PATH": "/bin", "API_KEY": "k"}


def test_inherit_all_passes_everything_but_our_own_variables():
    parent = {"PATH": "/bin", "API_KEY": "k"}
    assert child_environment(parent | SECRETS, extra={}, inherit="all") == parent


@pytest.mark.parametrize("inherit", [(), ("TRUNKLINE_TOKEN", "TRUNKLINE_OPERATOR_TOKEN"), "all"])
def test_our_own_tokens_never_pass(inherit):
    assert child_environment(SECRETS, extra={}, inherit=inherit) == {}


def test_extra_wins_over_what_was_inherited_and_may_name_anything():
    extra = {"PATH": "/opt/bin", "TRUNKLINE_TOKEN": "the server's own"}
    assert child_environment({"PATH": "/bin"} | SECRETS, extra=extra, inherit="all") == extra


def test_the_parent_is_left_as_it_was():
    parent = {"PATH": "/bin"}
    child_environment(parent, extra={"PATH": "/opt"}, inherit=())["NEW"] = "x"
    assert parent == {"PATH": "/bin"}
