from __future__ import annotations

import json

import pytest

from trunkline.core.call import Caller
from trunkline.core.tool import Snapshot, ToolDefinition
from trunkline.router.catalog import Catalog, CatalogViews
from trunkline.router.options import NameRules

ANNA, BEN, NOBODY = Caller(session="anna"), Caller(session="ben"), Caller()


def tools_snapshot(source: str, *names: str) -> Snapshot:
    return Snapshot(tools=tuple(ToolDefinition(source, name, json.dumps({"name": name}).encode()) for name in names))


def views_of(**tools: list[str]) -> tuple[Catalog, CatalogViews]:
    catalog = Catalog("prefixed", 48, lambda: None)
    for source, names in tools.items():
        catalog.add_source(source, NameRules(prefix=source))
        catalog.replace(source, tools_snapshot(source, *names))
    return catalog, CatalogViews(catalog)


def seen(views: CatalogViews, caller: Caller) -> list[str]:
    return [definition["name"] for definition in json.loads(views.of(caller).listing)]


def test_everybody_sees_the_catalog_itself_while_nothing_differs() -> None:
    catalog, views = views_of(a=["x"])
    assert views.of(ANNA) is views.of(NOBODY) is catalog


@pytest.mark.law
def test_one_session_sees_what_its_own_server_offers_and_the_others_do_not() -> None:
    _, views = views_of(a=["x"], b=["y"])
    views.overlay("anna", "a", tools_snapshot("a", "x", "grown"))
    assert seen(views, ANNA) == ["a_x", "a_grown", "b_y"]
    assert seen(views, BEN) == seen(views, NOBODY) == ["a_x", "b_y"]
    assert views.of(ANNA).find("a.grown") is not None
    assert views.of(BEN).find("a.grown") is None


def test_a_session_with_tools_of_its_own_still_follows_the_other_servers() -> None:
    catalog, views = views_of(a=["x"], b=["y"])
    views.overlay("anna", "a", tools_snapshot("a", "grown"))
    assert seen(views, ANNA) == ["a_grown", "b_y"]
    catalog.replace("b", tools_snapshot("b", "z"))
    assert seen(views, ANNA) == ["a_grown", "b_z"]
    catalog.hide("b", True)
    assert seen(views, ANNA) == ["a_grown"]


def test_what_is_no_longer_different_or_belongs_to_a_session_that_ended_is_forgotten() -> None:
    catalog, views = views_of(a=["x"])
    views.overlay("anna", "a", tools_snapshot("a", "grown"))
    views.overlay("anna", "a", tools_snapshot("a", "x"))
    assert views.of(ANNA) is catalog
    views.overlay("ben", "a", tools_snapshot("a", "grown"))
    views.overlay("ben", "a", None)
    assert views.of(BEN) is catalog
    views.overlay("ben", "a", tools_snapshot("a", "grown"))
    views.forget("ben")
    assert views.of(BEN) is catalog
