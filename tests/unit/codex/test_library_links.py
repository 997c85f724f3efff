"""A codex of a link goes where the link goes: it is the same codex, of other files."""

from pathlib import Path

import pytest
from support.libraries import changes_of, fill, request, texts

from codex.errors import NameTaken
from codex.library import Library


@pytest.fixture
def link(tmp_path: Path) -> Path:
    fill(tmp_path / "releases", {"1/a.py": "a = 1\n", "2/a.py": "a = 2\n"})
    (tmp_path / "current").symlink_to("releases/1")
    return tmp_path / "current"


def repoint(link: Path, to: str) -> None:
    link.unlink()
    link.symlink_to(to)


def follow(library: Library, name: str) -> tuple[str, ...]:
    return changes_of(library, name).changed


def test_it_has_the_links_name_and_says_where_that_leads(library: Library, link: Path) -> None:
    codex = library.load(request(link)).codex
    assert (codex.name, codex.roots) == ("current", (str(link.resolve()),))
    assert library.request("current").sources == (str(link),)


def test_a_link_that_is_pointed_elsewhere_is_followed_there(library: Library, link: Path) -> None:
    library.load(request(link))
    repoint(link, "releases/2")
    assert follow(library, "current") == ("a.py",)
    assert library.catalog.codex("current").roots == (str(link.resolve()),)
    assert library.load(library.request("current")).generation.number == 2
    assert texts(library, "current") == {"a.py": "a = 2\n"}


@pytest.mark.parametrize("followed", [True, False])
def test_loading_the_link_again_is_an_update_whether_or_not_it_was_followed(
    library: Library, link: Path, followed: bool
) -> None:
    library.load(request(link, name="live"))
    repoint(link, "releases/2")
    if followed:
        follow(library, "live")
    assert library.load(request(link)).codex.name == "live"
    assert [one.name for one in library.catalog.codices()] == ["live"]
    assert texts(library, "live") == {"a.py": "a = 2\n"}


def test_a_folder_in_the_place_of_a_link_is_the_same_codex(library: Library, link: Path) -> None:
    library.load(request(link))
    link.unlink()
    fill(link, {"a.py": "a = 3\n"})
    assert library.load(request(link)).codex.name == "current"
    assert texts(library, "current") == {"a.py": "a = 3\n"}


def test_a_codex_that_was_loaded_by_what_the_link_leads_to_is_updated_and_then_follows_the_link(
    library: Library, link: Path
) -> None:
    library.load(request(link.resolve(), name="live"))
    assert library.load(request(link)).codex.name == "live"
    repoint(link, "releases/2")
    assert follow(library, "live") == ("a.py",)


def test_of_two_codices_that_lead_to_one_folder_each_is_loaded_by_its_own_path(library: Library, link: Path) -> None:
    library.load(request(link))
    library.load(request(link.parent / "releases" / "2", name="second"))
    repoint(link, "releases/2")
    follow(library, "current")
    assert library.load(request(link)).codex.name == "current"
    assert library.load(request(link.resolve())).codex.name == "second"


def test_revisions_of_one_repository_stay_different_codices(library: Library, link: Path) -> None:
    library.load(request(link, name="live"))
    with pytest.raises(NameTaken):
        library.load(request(link.parent / "releases" / "2", name="live"))


def test_roots_are_told_apart_by_the_links_name_so_that_files_keep_theirs(library: Library, link: Path) -> None:
    other = fill(link.parent / "other", {"b.py": "b = 1\n"})
    library.load(request(link, other, name="both"))
    assert set(texts(library, "both")) == {"current/a.py", "other/b.py"}
    repoint(link, "releases/2")
    assert follow(library, "both") == ("current/a.py",)
