"""The circumstances of a turn, in words, pinned while they hold."""

from collections.abc import Sequence

import pytest

from formatters.context import SigilView
from orchestrator.errors import InvalidRequest, NotFound
from orchestrator.prompt.situation import (
    Levels,
    ReadableCodex,
    SessionCodex,
    choose_codex,
    environment_of,
    may_use,
    named_documents,
    renewed,
)

OWNER = SigilView(name="owner", uid=1000, scopes=frozenset({"admin"}))
GUEST = SigilView(name="guest", uid=1001, scopes=frozenset({"query", "tools:search_archive"}))
CALM = Levels(memory="calm", power="normal", network="online")


def test_the_environment_states_levels_and_allowed_tools() -> None:
    around = environment_of(CALM, GUEST, ["search_archive", "expand_detail"])
    assert (around.vram, around.power, around.network) == ("calm", "normal", "online")
    assert around.available_tools == ("search_archive",)


def test_the_owner_may_use_every_tool() -> None:
    assert environment_of(CALM, OWNER, ["b", "a"]).available_tools == ("a", "b")
    assert may_use(OWNER, "anything")
    assert not may_use(GUEST, "anything")


def test_a_model_without_tools_is_told_of_none() -> None:
    assert environment_of(CALM, OWNER).available_tools is None


def test_an_environment_that_did_not_change_has_no_reason_for_another_prefix() -> None:
    assert renewed(environment_of(CALM, OWNER), environment_of(CALM, OWNER)) == ""


def test_a_level_that_changed_is_named() -> None:
    before, now = environment_of(CALM, OWNER), environment_of(Levels("high", "normal", None), OWNER)
    assert renewed(before, now) == "vram changed from calm to high, network changed from online to unknown"


def test_what_a_client_brought_is_not_repeated_in_the_reason() -> None:
    before, now = environment_of(CALM, OWNER), environment_of(CALM, OWNER, client_system=["be brief"])
    assert renewed(before, now) == "client_system changed"


def test_a_new_conversation_takes_what_there_is() -> None:
    assert renewed(None, environment_of(CALM, OWNER)) == ""


def test_a_number_is_no_level() -> None:
    with pytest.raises(ValueError, match="vram"):
        environment_of(Levels(memory="93 %"), OWNER)


# ---- Which codex a question is about


OUTER = ReadableCodex("outer", "/src")
INNER = ReadableCodex("inner", "/src/inner")
OTHER = ReadableCodex("other", "/other")
ALL = (OUTER, INNER, OTHER)


def name_of(
    asked: str | None, cwd: str, among: Sequence[ReadableCodex], kept: SessionCodex | None = None
) -> str | None:
    return choose_codex(asked, cwd, among, kept)[0]


def notice(asked: str | None, cwd: str, among: Sequence[ReadableCodex]) -> str:
    return choose_codex(asked, cwd, among)[1]


def test_a_named_codex_is_taken() -> None:
    assert name_of("other", "/src", ALL) == "other"


def test_the_beginning_of_a_name_is_enough_where_only_one_codex_begins_so_and_a_notice_says_which() -> None:
    assert choose_codex("Inn", "", ALL) == ("inner", "this is about inner, the only codex whose name begins with Inn")
    with pytest.raises(NotFound, match="no codex named 'o'") as refused:
        name_of("o", "", ALL)
    assert "outer" in refused.value.hint
    assert "other" in refused.value.hint


def test_the_case_of_a_name_counts_only_between_names_that_differ_in_nothing_else() -> None:
    assert choose_codex("OUTER", "", ALL) == ("outer", "")
    upper = ReadableCodex("Outer", "/upper")
    assert name_of("Outer", "", (*ALL, upper)) == "Outer"
    with pytest.raises(NotFound):
        name_of("OUTER", "", (*ALL, upper))


def test_a_whole_name_goes_before_one_that_begins_so() -> None:
    assert choose_codex("inner", "", (INNER, ReadableCodex("inner-tests", "/t"))) == ("inner", "")


def test_a_session_knows_its_codex_by_the_beginning_of_its_name() -> None:
    assert name_of("inn", "", ALL, SessionCodex("s", "inner")) == "inner"
    with pytest.raises(InvalidRequest, match="is about codex 'inner', not 'out'"):
        name_of("out", "", ALL, SessionCodex("s", "inner"))


def test_none_asks_the_bare_model_whatever_is_loaded() -> None:
    assert name_of("none", "/src", ALL) is None
    assert name_of("none", "", ()) is None


def test_an_unknown_name_is_refused_with_the_nearest_ones() -> None:
    with pytest.raises(NotFound) as refusal:
        name_of("iner", "/src", ALL)
    assert "inner" in refusal.value.hint


@pytest.mark.parametrize(
    ("cwd", "name"),
    [
        ("/src", "outer"),
        ("/src/lib", "outer"),
        ("/src/inner", "inner"),
        ("/src/inner/a/b", "inner"),
        ("/other", "other"),
    ],
)
def test_the_deepest_root_that_holds_the_working_directory_is_taken(cwd: str, name: str) -> None:
    assert name_of(None, cwd, ALL) == name


def test_of_several_from_one_folder_the_choice_is_told_to_who_named_none() -> None:
    twins = (*ALL, ReadableCodex("docs", "/src/inner"), ReadableCodex("all", "/src/inner"))
    assert name_of(None, "/src/inner/a", twins) == "inner"
    told = "this is about inner; the same folder is loaded as all, docs too: choose with -c NAME"
    assert notice(None, "/src/inner/a", twins) == told
    assert notice("inner", "/src/inner/a", twins) == ""
    for cwd in ("/src", "/other"):
        assert notice(None, cwd, twins) == ""
    for cwd in ("", "/tmp"):
        with pytest.raises(InvalidRequest, match="none is named"):
            notice(None, cwd, twins)


def test_a_single_file_is_not_meant_by_who_stands_in_its_folder() -> None:
    file = ReadableCodex("clients.md", "/src/inner/docs/clients.md")
    assert name_of(None, "/src/inner/docs", (*ALL, file)) == "inner"
    assert name_of(None, "/src/inner/docs", (file,)) == "clients.md"  # there is no other


def test_a_name_that_only_begins_alike_holds_nothing() -> None:
    with pytest.raises(InvalidRequest):
        name_of(None, "/src-old", ALL)


def test_elsewhere_the_only_codex_is_taken() -> None:
    assert name_of(None, "/tmp", (OTHER,)) == "other"
    assert name_of(None, "", (OTHER,)) == "other"


def test_elsewhere_among_several_the_names_are_told() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        name_of(None, "/tmp", ALL)
    assert "inner, other, outer" in refusal.value.hint


def test_without_any_codex_the_way_out_is_told() -> None:
    with pytest.raises(InvalidRequest) as refusal:
        name_of(None, "/tmp", ())
    assert "-c none" in refusal.value.hint


def test_a_conversation_keeps_its_codex() -> None:
    assert name_of(None, "/other", ALL, SessionCodex("s", "inner")) == "inner"
    assert name_of("inner", "/other", ALL, SessionCodex("s", "inner")) == "inner"
    assert name_of(None, "/other", ALL, SessionCodex("s", None)) is None


@pytest.mark.parametrize(("asked", "kept"), [("other", "inner"), ("none", "inner"), ("inner", None)])
def test_a_conversation_is_not_moved_to_another_codex(asked: str, kept: str | None) -> None:
    with pytest.raises(InvalidRequest):
        name_of(asked, "/src", ALL, SessionCodex("s", kept))


def test_a_conversation_whose_codex_was_dropped_says_so_and_names_the_ways_out() -> None:
    with pytest.raises(NotFound, match="session 's' is about codex 'gone', which is not loaded") as refusal:
        name_of(None, "/src", ALL, SessionCodex("s", "gone"))
    for way in ("lore load PATH --name gone", "without this session", "lore session drop s"):
        assert way in refusal.value.hint


# ---- Which files a question names


PATHS = ("README.md", "src/a.py", "src/b.py", "src/deep/a.py", "Makefile", "lib/only.rs")


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("what does src/a.py do?", ("src/a.py",)),
        ("what does ./src/a.py do?", ("src/a.py",)),
        ("look at deep/a.py.", ("src/deep/a.py",)),
        ("explain b.py and only.rs", ("src/b.py", "lib/only.rs")),
        ("is `README.md` right?", ("README.md",)),
        ("see src\\b.py:12", ("src/b.py",)),
        ("explain a.py", ()),
        ("explain the loop", ()),
        ("what is 1.5 and e.g. this?", ()),
        ("", ()),
    ],
)
def test_a_file_is_named_by_its_path_or_by_a_name_of_its_own(question: str, named: tuple[str, ...]) -> None:
    assert named_documents(question, PATHS) == named


def test_a_question_that_names_everything_names_a_few() -> None:
    paths = tuple(f"f{place}.py" for place in range(30))
    assert len(named_documents(" ".join(paths), paths)) == 8


def test_what_is_too_long_for_a_name_is_none_and_hides_none_beside_it() -> None:
    assert named_documents(f"{'a/' * 6_000}b.py and b.py, see {'.' * 12_000}", PATHS) == ("src/b.py",)


def test_a_path_is_found_by_each_of_its_ends_and_by_no_piece_of_a_name() -> None:
    paths = ("x/src/deep/a.py", "y/src/deep/a.py")
    assert named_documents("x/src/deep/a.py", paths) == paths[:1]
    assert named_documents("src/deep/a.py or deep/a.py", paths) == paths
    assert named_documents("eep/a.py", paths) == ()
