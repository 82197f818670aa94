"""No link in the documentation is broken."""

from __future__ import annotations

from pathlib import Path

from tests.support.docs_pages import DOCS, PAGES, ROOT, anchors, links, title_of

EVERY_PAGE = [*PAGES, *sorted((DOCS / "adr").glob("*.md")), *sorted(ROOT.glob("*.md"))]


def test_links_within_the_project_lead_somewhere() -> None:
    within = [(page, link) for page in EVERY_PAGE for link in links(page) if "://" not in link]
    assert [(title_of(page), link) for page, link in within if not leads_somewhere(page, link)] == []
    assert len(within) > len(EVERY_PAGE)


def leads_somewhere(page: Path, link: str) -> bool:
    place, _, anchor = link.partition("#")
    target = (page.parent / place).resolve() if place else page
    return target.exists() and (not anchor or (target.suffix == ".md" and anchor in anchors(target)))


def test_a_link_that_leads_nowhere_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# A `b` c\n\n[x](page.md#a-b-c) [y](page.md#gone) [z](gone.md) `[no](link.md)`\n")
    assert [link for link in links(page) if not leads_somewhere(page, link)] == ["page.md#gone", "gone.md"]


def test_every_page_is_reached_from_the_index() -> None:
    index = DOCS / "README.md"
    reached, todo = set(), [index]
    while todo:
        page = todo.pop()
        if page in reached or page.suffix != ".md" or DOCS not in page.parents:
            continue
        reached.add(page)
        todo += [(page.parent / link.partition("#")[0]).resolve() for link in links(page) if "://" not in link]
    assert [title_of(page) for page in PAGES if page not in reached] == []
