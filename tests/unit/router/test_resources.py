from __future__ import annotations

import json

import pytest
from tests.unit.router.fakes import full_snapshot, item
from tests.unit.router.test_prompts import catalog_of

from trunkline.core.tool import Snapshot
from trunkline.router.catalog import Catalog
from trunkline.router.resources import ResourceLocation, resource_address


def uris(catalog: Catalog) -> list[str]:
    return [resource["uri"] for resource in json.loads(catalog.resources.listing)]


def templates(catalog: Catalog) -> list[str]:
    return [resource["uriTemplate"] for resource in json.loads(catalog.resources.template_listing)]


def test_the_first_server_keeps_a_uri_and_a_later_one_gets_an_address() -> None:
    catalog = catalog_of(
        a=full_snapshot("a", resources=["test://x", "test://y"]),
        b=full_snapshot("b", resources=["test://x", "test://z"]),
    )
    assert uris(catalog) == ["test://x", "test://y", "trunkline://b/test://x", "test://z"]
    assert [problem.source for problem in catalog.resources.collisions] == ["b"]
    assert catalog.resources.by_uri("test://x") == ("a", "test://x")
    assert catalog.resources.by_address("trunkline://b/test://x") == ("b", "test://x")


def test_a_template_that_two_servers_have_is_treated_like_a_uri() -> None:
    template = "test://{id}/data{?q}"
    catalog = catalog_of(
        a=full_snapshot("a", templates=[template]), b=full_snapshot("b", templates=[template, "b://{x}"])
    )
    assert templates(catalog) == [template, f"trunkline://b/{template}", "b://{x}"]
    assert catalog.resources.by_template("test://1/data?q=2") == ("a", "test://1/data?q=2")
    assert catalog.resources.by_template("b://1") == ("b", "b://1")
    assert catalog.resources.by_template("c://1") is None
    assert catalog.resources.by_address("trunkline://b/test://1/data") == ("b", "test://1/data")
    assert catalog.resources.by_template_text(template) == ("a", template)


def test_every_resource_may_be_written_as_an_address_listed_or_not() -> None:
    resources = catalog_of(My_Server=full_snapshot("My_Server", resources=["x://1"])).resources
    assert resources.by_address("trunkline://My_Server/x://1") == ("My_Server", "x://1")
    assert resources.by_address("trunkline://my_server/x://2?a#b") == ("My_Server", "x://2?a#b")
    for nobodys in ("trunkline://other/x://1", "trunkline://My_Server/", "trunkline://My_Server", "x://1"):
        assert resources.by_address(nobodys) is None


def test_a_server_without_resources_has_no_addresses_unless_it_was_not_heard_of() -> None:
    catalog = catalog_of(a=full_snapshot("a", tools=["t"]))
    assert catalog.resources.by_address("trunkline://a/x://1") is None
    catalog.replace("a", None)
    assert catalog.resources.by_address("trunkline://a/x://1") == ("a", "x://1")


@pytest.mark.parametrize("inner", ["trunkline://a/test://x", "TrunkLine://A/test://x"])
def test_a_uri_that_looks_like_an_address_of_ours_is_listed_as_one(inner: str) -> None:
    """As when a server is a gateway of the same kind."""
    catalog = catalog_of(a=full_snapshot("a", resources=["test://x"]), b=full_snapshot("b", resources=[inner]))
    assert uris(catalog) == ["test://x", f"trunkline://b/{inner}"]
    assert catalog.resources.by_address(f"trunkline://b/{inner}") == ("b", inner)
    assert resource_address(ResourceLocation("b", inner)) == f"trunkline://b/{inner}"


def test_resources_of_a_server_that_is_away_keep_their_uris_and_are_not_listed() -> None:
    catalog = catalog_of(a=full_snapshot("a", resources=["x://1"]), b=full_snapshot("b", resources=["x://1"]))
    catalog.hide("a", True)
    assert uris(catalog) == ["trunkline://b/x://1"]
    assert catalog.resources.by_uri("x://1") == ("a", "x://1")


def test_only_a_single_server_with_resources_is_guessed() -> None:
    catalog = catalog_of(a=full_snapshot("a", tools=["t"]), b=full_snapshot("b", capabilities={"resources": {}}))
    assert catalog.resources.the_only("x://1") == ("b", "x://1")
    catalog.replace("a", full_snapshot("a", resources=["y://1"]))
    assert catalog.resources.the_only("x://1") is None


def test_everything_but_the_uri_is_as_the_server_wrote_it() -> None:
    raw = item("b", "uri", "x://1", name="n", size=12345678901234567890123, annotations={"priority": 1})
    catalog = catalog_of(a=full_snapshot("a", resources=["x://1"]), b=Snapshot(resources=(raw,)))
    [_, listed] = json.loads(catalog.resources.listing)
    assert listed == {**json.loads(raw.definition), "uri": "trunkline://b/x://1"}
    assert b'"size":12345678901234567890123,"annotations":{"priority":1}' in catalog.resources.listing


def test_templates_without_end_are_listed_and_not_all_tried() -> None:
    many = [f"x{number}://{'a' * 1000}/{{v}}" for number in range(100)]
    catalog = catalog_of(a=full_snapshot("a", templates=many), b=full_snapshot("b", templates=["y://{v}"]))
    assert len(templates(catalog)) == 101
    assert catalog.resources.by_template(many[0].format(v="") + "1") is not None
    assert catalog.resources.by_template(many[99].replace("{v}", "1")) is None
    assert catalog.resources.by_template("y://1") == ("b", "y://1")
    assert catalog.resources.by_address("trunkline://a/" + many[99].replace("{v}", "1")) is not None
