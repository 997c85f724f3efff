"""From a request to what the library is asked for."""

import os

import pytest

from codex.trees.ignore import Globs
from codex.trees.sources import LoadSpec as Wanted
from orchestrator.codices.loading import library_request
from orchestrator.errors import NotPermitted
from orchestrator.service import Principal
from orchestrator.wire.places import is_url
from orchestrator.wire.requests import LoadBody

ME = Principal(os.geteuid(), os.getegid(), os.getpid())


def test_all_that_was_asked_for_reaches_the_library():
    request = LoadBody(
        path="/a",
        name="n",
        more=("/b", "git@host:x.git"),
        revision="v1",
        secrets=True,
        replace=True,
        include=("*.py",),
        exclude=("x",),
    )
    wanted = Wanted(("/a", "/b", "git@host:x.git"), "n", Globs(("*.py",), ("x",)), "v1", True, True)
    assert library_request(ME, request) == wanted


@pytest.mark.parametrize("place", ["/etc/passwd", "https://host/x.git"])
def test_nobody_has_the_daemon_read_for_them(place):
    with pytest.raises(NotPermitted, match=r"the daemon (opens|asks) no "):
        library_request(Principal(os.geteuid() + 1, 0, 1), LoadBody(path=place))


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("https://h/x.git", True),
        ("git@h:x", True),
        ("file:///x", True),
        ("/a:b", False),
        ("src", False),
        ("a/b:c", False),
    ],
)
def test_git_urls_are_told_from_paths(place, expected):
    assert is_url(place) is expected
