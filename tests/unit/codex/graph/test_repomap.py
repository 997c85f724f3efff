"""The map: what is central, within the budget, always the same."""

import gc
from collections.abc import Sequence

import pytest

from codex.documents import Document
from codex.graph.centrality import Gist, centrality, file_links, gist
from codex.graph.modules import Modules
from codex.graph.repomap import repo_map
from codex.outline.symbols import outline

FILES = {
    "app/core.py": "class Engine:\n    def start_engine(self):\n        pass\n\ndef shared_helper():\n    pass\n",
    "app/one.py": (
        "from app.core import Engine, shared_helper\n\ndef first():\n    shared_helper()\n    Engine().start_engine()\n"
    ),
    "app/two.py": "from app.core import shared_helper\n\ndef second():\n    shared_helper()\n",
    "app/lonely.py": "def nobody_calls():\n    pass\n",
    "tests/test_one.py": "from app.one import first\n\ndef test_first():\n    first()\n",
}


def gists() -> dict[str, Gist]:
    return {path: gist(outline(Document(path, text, "", len(text)))) for path, text in FILES.items()}


def by_words(texts: Sequence[str]) -> list[int]:
    return [len(text.split()) for text in texts]


def test_what_others_use_is_central() -> None:
    ranks = centrality(gists())
    assert max(ranks, key=lambda path: ranks[path]) == "app/core.py"
    assert sum(ranks.values()) == pytest.approx(1.0)
    assert centrality({}) == {}


def test_what_is_kept_of_a_file_is_few_objects_for_the_garbage_collector_however_many_names_it_uses() -> None:
    """Its full collections stop every thread; with an object for each reference they took most of a second."""
    parsed = outline(Document("a.py", "".join(f"call_{number}()\n" for number in range(5_000)), "", 1))
    assert len(parsed.references) == 5_000
    assert followed(parsed) > 5_000
    assert followed(gist(parsed)) < 10


def followed(root: object) -> int:
    """Objects that a full collection visits for this one."""
    seen, left = set[int](), [root]
    while left:
        one = left.pop()
        if id(one) not in seen and gc.is_tracked(one) and not isinstance(one, type):
            seen.add(id(one))
            left += gc.get_referents(one)
    return len(seen)


def test_attention_begins_where_it_is_asked_to() -> None:
    plain, personal = centrality(gists()), centrality(gists(), {"app/lonely.py": 1.0})
    assert personal["app/lonely.py"] > plain["app/lonely.py"]


def test_links_lead_from_use_to_definition_and_to_what_is_imported() -> None:
    links = file_links(gists())
    assert links["tests/test_one.py", "app/one.py"] > 0
    assert ("app/core.py", "app/one.py") not in links


def test_a_map_fits_its_budget_and_holds_the_most_central_first() -> None:
    for budget in range(0, 60, 3):
        text = repo_map(gists(), budget, by_words)
        assert by_words([text])[0] <= budget
    assert repo_map(gists(), 8, by_words).startswith("app/core.py\n")
    whole = repo_map(gists(), 10_000, by_words)
    assert all(path in whole for path in FILES)
    assert "  1 class Engine\n    2 def start_engine(self)\n" in whole


def test_a_larger_budget_never_shows_less() -> None:
    sizes = [len(repo_map(gists(), budget, by_words)) for budget in range(0, 80, 5)]
    assert sizes == sorted(sizes)


def test_equal_gists_give_an_equal_map() -> None:
    backwards = dict(reversed(gists().items()))
    assert repo_map(gists(), 30, by_words) == repo_map(backwards, 30, by_words)


def test_imports_lead_to_files_in_every_notation() -> None:
    modules = Modules(["src/flask/json/provider.py", "src/flask/json/__init__.py", "web/util/index.ts", "net/socket.h"])
    assert modules.of("flask.json.provider") == ("src/flask/json/provider.py",)
    assert modules.of("flask.json.provider.JSONProvider") == ("src/flask/json/provider.py",)
    assert modules.of("flask.json") == ("src/flask/json/__init__.py",)
    assert modules.of("./util") == ("web/util/index.ts",)
    assert modules.of("net/socket.h") == ("net/socket.h",)
    assert modules.of("nothing.here") == ()
    assert modules.of("") == ()
