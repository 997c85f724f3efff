import time

import pytest
from dulwich.ignore import IgnoreFilter
from hypothesis import example, given
from hypothesis import strategies as st

from codex.settings import SecretSettings, WalkSettings
from codex.trees.ignore import Globs, IgnoreRules, Selection, SkipReason, is_secret


def rules(**files: str) -> IgnoreRules:
    """Ignore files by folder; `top` is the root's."""
    there = {("" if folder == "top" else f"{folder}/") + ".loreignore": text.encode() for folder, text in files.items()}
    return IgnoreRules(".loreignore", there.get)


def selection(*, include: tuple[str, ...] = (), exclude: tuple[str, ...] = (), named: str = "") -> Selection:
    return Selection(WalkSettings(), SecretSettings(), Globs(include, exclude), frozenset(named.split()))


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("src/a.py", None),
        (".github/workflows/ci.yml", None),
        ("a/.git/config", SkipReason.VERSION_CONTROL),
        ("web/node_modules/x/index.js", SkipReason.VENDORED),
        ("x.egg-info/PKG-INFO", SkipReason.VENDORED),
        ("Cargo.lock", SkipReason.LOCK_FILE),
        ("requirements.lock", SkipReason.LOCK_FILE),
        ("web/package-lock.json", SkipReason.LOCK_FILE),
        ("static/app.min.js", SkipReason.MINIFIED),
        ("static/app.js.map", SkipReason.MINIFIED),
        ("logo.PNG", SkipReason.BINARY),
        (".env", SkipReason.SECRET_NAME),
        ("deploy/.env.production", SkipReason.SECRET_NAME),
        (".env.example", None),
        ("home/.ssh/config", SkipReason.SECRET_NAME),
        ("id_ed25519", SkipReason.SECRET_NAME),
        ("id_ed25519.pub", None),
        ("tls/server.KEY", SkipReason.SECRET_NAME),
    ],
)
def test_names_alone_decide(path: str, reason: SkipReason | None) -> None:
    assert selection().verdict(path, 10, None) == reason


def test_dot_files_are_left_out_where_the_settings_say_so() -> None:
    only_plain = Selection(WalkSettings(hidden=False), SecretSettings())
    paths = ("a.py", ".pre-commit-config.yaml", ".github/workflows/ci.yml")
    assert [only_plain.verdict(path, 1, None) for path in paths] == [None, SkipReason.HIDDEN, SkipReason.HIDDEN]
    assert (only_plain.enters(".github", None), only_plain.enters("src", None)) == (False, True)
    assert only_plain.verdict(".editorconfig", 1, rules(top="!.editorconfig\n")) is None


def test_a_file_larger_than_the_limit_is_left_out_by_its_size() -> None:
    assert selection().verdict("a.py", 1 << 20, None) is None
    assert selection().verdict("a.py", (1 << 20) + 1, None) == SkipReason.TOO_LARGE


def test_loreignore_hides_and_takes_back() -> None:
    ours = rules(top="*.sql\n!poetry.lock\n!vendor/\n", docs="!keep.sql\nold/\n")
    verdicts = {
        path: selection().verdict(path, 1, ours)
        for path in ["a.sql", "docs/keep.sql", "docs/old/x.md", "poetry.lock", "uv.lock"]
    }
    assert verdicts == {
        "a.sql": SkipReason.IGNORED,
        "docs/keep.sql": None,
        "docs/old/x.md": SkipReason.IGNORED,
        "poetry.lock": None,
        "uv.lock": SkipReason.LOCK_FILE,
    }


def test_loreignore_does_not_give_secrets_away() -> None:
    assert selection().verdict(".env", 1, rules(top="!.env\n")) == SkipReason.SECRET_NAME


def test_include_takes_only_what_matches_and_exclude_wins() -> None:
    chosen = selection(include=("*.py", "docs/"), exclude=("test_*",))
    verdicts = {path: chosen.verdict(path, 1, None) for path in ["src/a.py", "docs/b.md", "c.md", "src/test_a.py"]}
    assert verdicts == {
        "src/a.py": None,
        "docs/b.md": None,
        "c.md": SkipReason.NOT_INCLUDED,
        "src/test_a.py": SkipReason.EXCLUDED,
    }


def test_a_file_that_was_named_is_taken_whatever_it_is_called() -> None:
    assert selection(named=".env").verdict(".env", 1, None) is None
    assert selection(include=(".env",)).verdict(".env", 1, None) is None
    assert selection(include=(".env",)).verdict("deep/.env", 1, None) == SkipReason.SECRET_NAME


def test_a_folder_is_entered_only_when_something_in_it_can_be_taken() -> None:
    ours = rules(top="gone/\n!vendor/\n")
    entered = {folder: selection().enters(folder, ours) for folder in ["src", ".git", "node_modules", "gone", "vendor"]}
    assert entered == {"src": True, ".git": False, "node_modules": False, "gone": False, "vendor": True}
    assert selection(exclude=("docs/",)).enters("docs", None) is False


def test_examples_of_secrets_are_no_secrets() -> None:
    assert not any(map(is_secret, [".env.example", "settings.env.template", "key.py", "keys/readme.md"]))


@given(st.text(alphabet="ab.*?(/[]^!\\", min_size=1, max_size=10), st.text(alphabet="ab.(*/", min_size=1, max_size=12))
@example("*a*b", "ab/aab")
@example("*?*[^a]*", "b/abba")
@example("**/a*b*/", "x/y/acbd")
def test_a_pattern_with_many_stars_means_what_it_does_without_our_help(pattern: str, path: str) -> None:
    path = path.strip("/") or "a"
    for is_folder in (False, True):
        matched = [one.matches(path.encode(), is_folder) for one in IgnoreFilter([pattern.encode()]).patterns]
        ours = rules(top=pattern)._patterns_of("")
        assert [one.matches(path.encode(), is_folder) for one in ours] == matched


@pytest.mark.parametrize(
    "pattern", ["*a" * 20 + "*b", "a*" * 20 + "b", "?*" * 20 + "b", "*[ab]" * 20 + "*c", "*a" * 9 + "/*b"]
)
def test_a_pattern_of_twenty_stars_is_decided_at_once(pattern: str) -> None:
    decided = rules(top=pattern)
    began = time.thread_time()
    assert decided.verdict("a" * 255) is None
    assert time.thread_time() - began < 0.5
