"""For any snapshots, every listed item leads back to the server that published it."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from trunkline.core.call import Caller
from trunkline.core.tool import ItemDefinition, Snapshot
from trunkline.router.catalog import Catalog, CatalogViews
from trunkline.router.options import NameRules
from trunkline.router.rewriting import UriRewriter

SOURCES = ("a", "b", "A", "a_b")
uris = st.sampled_from(
    [
        "x://1",
        "x://2",
        "x://1/2",
        "trunkline://a/x://1",
        "trunkline://A/x://1",
        "trunkline://b/",
        "trunkline://z/x",
        "é",
    ]
)
templates = st.sampled_from(["x://{v}", "x://{+v}", "{+v}", "trunkline://a/{v}", "x://{v", "trunkline://{v}"])
names = st.sampled_from(["p", "a_p", "b.p", "p!", "p?", "x" * 80, "trunkline.p"])


def items(source: str, member: str, keys: list[str]) -> tuple[ItemDefinition, ...]:
    return tuple(
        ItemDefinition(source, key, json.dumps({member: key, "from": source, "own": key}).encode()) for key in keys
    )


@st.composite
def snapshots(draw: st.DrawFn) -> dict[str, Snapshot]:
    chosen = draw(st.lists(st.sampled_from(SOURCES), unique=True, min_size=1))
    return {
        source: Snapshot(
            prompts=items(source, "name", draw(st.lists(names, unique=True, max_size=4))),
            resources=items(source, "uri", draw(st.lists(uris, unique=True, max_size=4))),
            templates=items(source, "uriTemplate", draw(st.lists(templates, unique=True, max_size=3))),
        )
        for source in chosen
    }


def catalog_of(snapshots: dict[str, Snapshot], naming: str) -> Catalog:
    catalog = Catalog(naming, 24, lambda: None)
    for source, snapshot in snapshots.items():
        catalog.add_source(source, NameRules(prefix=source))
        catalog.replace(source, snapshot)
    return catalog


@given(snapshots(), st.sampled_from(["prefixed", "original"]))
def test_what_is_listed_leads_back_to_the_server_that_offers_it(snapshots: dict[str, Snapshot], naming: str) -> None:
    catalog = catalog_of(snapshots, naming)
    links = UriRewriter(CatalogViews(catalog))
    listed = json.loads(catalog.resources.listing)
    for resource in listed:
        assert links.resolve(Caller(), resource["uri"]) == (resource["from"], resource["own"])
    assert (
        len({resource["uri"] for resource in listed})
        == len(listed)
        == sum(len(snapshot.resources) for snapshot in snapshots.values())
    )
    for template in json.loads(catalog.resources.template_listing):
        assert links.resolve_template(Caller(), template["uriTemplate"]) == (template["from"], template["own"])
    for prompt in json.loads(catalog.prompts.listing):
        entry = catalog.prompts.find(prompt["name"])
        assert entry is not None
        assert (entry.source, entry.name) == (prompt["from"], prompt["own"])


@given(snapshots(), st.lists(st.tuples(st.sampled_from(SOURCES), uris), max_size=12))
def test_what_a_result_shows_leads_back_to_whoever_gave_it(
    snapshots: dict[str, Snapshot], given_uris: list[tuple[str, str]]
) -> None:
    links = UriRewriter(CatalogViews(catalog_of(snapshots, "prefixed")))
    with_resources = [source for source, snapshot in snapshots.items() if snapshot.resources or snapshot.templates]
    shown = [
        (source, uri, links.public_uri(Caller(), source, uri)) for source, uri in given_uris if source in with_resources
    ]
    for source, uri, known_as in shown:
        if len(with_resources) > 1:
            assert links.resolve(Caller(), known_as) == (source, uri)
        else:
            assert known_as == uri
