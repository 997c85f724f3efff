"""Places in answers, checked against everything that their prompt showed, in whatever form; and what a user selects."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from codex.catalog.generations import FileEntry, Generation
from codex.citations import Files
from codex.following.amendments import Amendment, ChangeKind
from codex.trees.port import TreeState
from formatters.blocks import Role
from formatters.context import AmendmentView as CodexNews
from formatters.context import (
    AttachmentView,
    CodexPiece,
    CodexView,
    Evidence,
    IdentityView,
    SigilView,
    StateView,
    TurnContext,
    TurnView,
)
from orchestrator.answering.grounding import NAME, AnswerSources, Passage, citations_of, lines_of, pointed, used_of
from orchestrator.codices.state import CodexState
from orchestrator.prompt.coverage import Coverage, CoverageDecision, CoverageSizes

LINES = {"src/a.py": 40, "src/b.py": 40, "src/c.py": 40, "Makefile": 3}
SKELETON = "3 class App: The application.\n7   def route(self): Registers.\n"


def ground(
    *pieces: CodexPiece,
    state: StateView | None = None,
    log: Sequence[Amendment] = (),
    running: Sequence[TurnView] = (),
    query: str = "?",
    lines: Mapping[str, int] = LINES,
) -> AnswerSources:
    codex = CodexView(name="c", pieces=pieces) if pieces else None
    turn = TurnContext(
        identity=IdentityView(name="i"),
        sigil=SigilView(name="owner", uid=0),
        codex=codex,
        state=state or StateView(),
        query=query,
    )
    return AnswerSources(turn, running, log, Files(lines))


def said(answer: str, on: AnswerSources) -> list[tuple[str, str]]:
    """Each place with what is wrong with it."""
    return [(f"{one.path}:{one.start}-{one.end}", one.why) for one in citations_of(answer, on)]


def valid(answer: str, on: AnswerSources) -> bool:
    return all(one.valid for one in citations_of(answer, on))


def piece(path: str, kind: str = "full", text: str = "") -> CodexPiece:
    return CodexPiece(path=path, text=text, kind=kind)


def test_what_stands_whole_was_shown_and_another_file_was_not() -> None:
    on = ground(piece("src/a.py"))
    assert said("src/a.py:1-40, a.py:41, src/b.py:3 and src/new.py:1", on) == [
        ("src/a.py:1-40", ""),
        ("src/a.py:41-41", "the file has 40 lines"),
        ("src/b.py:3-3", "these lines were not shown"),
        ("src/new.py:1-1", "no such file in this codex"),
    ]


def test_a_skeleton_shows_the_lines_that_it_lists() -> None:
    on = ground(piece("src/a.py", "skeleton", SKELETON))
    assert valid("src/a.py:3-30 and `src/a.py`, line 7", on)
    assert not valid("src/a.py:12", on)


def test_a_map_shows_the_lines_that_it_lists_under_their_file_and_of_a_file_that_it_names_none() -> None:
    on = ground(piece("src/a.py", "skeleton", SKELETON), piece("src/b.py", "line", "9 lives, other"))
    assert valid("src/a.py:7", on)
    assert not valid("src/b.py:7", on)
    assert not valid("src/b.py:9", on)
    assert not valid("src/a.py:9", on)


def test_evidence_of_this_turn_and_of_earlier_ones_was_shown() -> None:
    found = Evidence(path="src/b.py", start=5, end=9, text="x\n")
    earlier = TurnView(role=Role.USER, text="?", evidence=(Evidence(path="src/c.py", start=1, end=2, text="y\n"),))
    on = ground(piece("src/a.py"), state=StateView(turns=(earlier,), evidence=(found,)))
    assert valid("src/b.py:5-9, src/c.py:2", on)
    assert not valid("src/b.py:5-10", on)


def test_what_a_tool_found_was_shown() -> None:
    result = TurnView(role=Role.TOOL, text="=== src/b.py:5-9 other ===\ndef other():\n\n")
    assert valid("src/b.py:6", ground(piece("src/a.py"), running=(result,)))


def test_a_place_that_the_user_named_was_shown_and_one_that_an_answer_made_up_was_not() -> None:
    assert valid("As in src/b.py:12.", ground(piece("src/a.py"), query='File "src/b.py", line 12, in other'))
    made_up = TurnView(role=Role.ASSISTANT, text="It is in src/b.py:12.")
    assert not valid("src/b.py:12", ground(piece("src/a.py"), state=StateView(turns=(made_up,))))


def test_an_attached_file_may_be_cited_by_its_name() -> None:
    files = (
        AttachmentView(name="../other/notes.txt", text="one\ntwo"),
        AttachmentView(name="standard input", text="one\n"),
    )
    on = ground(state=StateView(attachments=files), lines={})
    assert valid("../other/notes.txt:2, notes.txt:1 and standard input:1", on)
    assert said("notes.txt:3", on) == [("../other/notes.txt:3-3", "the file has 2 lines")]
    later = TurnView(role=Role.USER, text="?", attachments=files)
    assert valid("notes.txt:1-2", ground(state=StateView(turns=(later,)), lines={}))


def test_an_amended_file_is_checked_as_it_was_told() -> None:
    whole = Amendment(1, "src/b.py", ChangeKind.CHANGED, "d", "new\n" * 40)
    text = "lines 5-6, go, in place of lines 5-5:\ndef go():\n    return 1\n"
    part = Amendment(2, "src/c.py", ChangeKind.CHANGED, "e", text, whole=False)
    on = ground(piece("src/a.py"), log=(whole, part))
    assert valid("src/b.py:40, src/c.py:5-6", on)
    assert said("src/c.py:7", on) == [("src/c.py:7-7", "these lines were not shown")]


def test_a_removed_file_is_there_no_more_and_a_moved_one_is_shown_by_what_it_was() -> None:
    moved = Amendment(1, "src/new.py", ChangeKind.MOVED, "d", source="src/a.py")
    gone = Amendment(2, "src/a.py", ChangeKind.REMOVED, None)
    on = ground(piece("src/a.py"), log=(moved, gone), lines={"src/new.py": 40})
    assert said("src/new.py:3 src/a.py:3", on) == [
        ("src/new.py:3-3", ""),
        ("src/a.py:3-3", "no such file in this codex"),
    ]


GROWN = Amendment(
    1, "src/a.py", ChangeKind.CHANGED, "d", "lines 1-12, in place of lines 1-2:\n" + "x\n" * 12, whole=False
)


def test_a_listed_line_is_cited_where_it_is_now_and_not_where_it_was() -> None:
    on = ground(piece("src/a.py", "skeleton", SKELETON), log=(GROWN,), lines=LINES | {"src/a.py": 50})
    assert valid("src/a.py:17-40, src/a.py:13 and src/a.py:1-12", on)
    assert said("src/a.py:14", on) == [("src/a.py:14-14", "these lines were not shown")]
    above = replace(on, log=(replace(GROWN, text="lines 2-2, added behind line 1:\nx\n"),))
    assert valid("src/a.py:8", above)
    assert not valid("src/a.py:7", above)


def test_a_listed_line_that_was_replaced_is_known_as_it_was_told() -> None:
    part = replace(GROWN, text="lines 3-4, in place of lines 3-9:\nclass App:\n    pass\n")
    on = ground(piece("src/a.py", "skeleton", SKELETON), log=(part,))
    assert valid("src/a.py:3-4", on)
    assert said("src/a.py:7", on) == [("src/a.py:7-7", "these lines were not shown")]


def test_parts_that_were_told_earlier_move_with_what_is_told_later() -> None:
    first = Amendment(1, "src/c.py", ChangeKind.CHANGED, "e", "lines 5-6, in place of lines 5-5:\na\nb\n", whole=False)
    second = Amendment(
        2, "src/c.py", ChangeKind.CHANGED, "f", "lines 1-3, added behind line 0:\n1\n2\n3\n", whole=False
    )
    on = ground(piece("src/a.py"), log=(first, second))
    assert valid("src/c.py:8-9 and src/c.py:1-3", on)
    assert not valid("src/c.py:5", on)


def test_evidence_and_places_of_earlier_turns_have_moved_with_what_was_told_since() -> None:
    found = Evidence(path="src/a.py", start=5, end=9, text="x\n")
    earlier = TurnView(role=Role.USER, text="and src/a.py:20?", evidence=(found,))
    news = (CodexNews(number=1, path="src/a.py", text="…"),)
    since = ground(piece("src/b.py"), state=StateView(turns=(earlier,), amendments=news), log=(GROWN,))
    assert valid("src/a.py:15-19 and src/a.py:30", since)
    assert not valid("src/a.py:20", since)
    with_it = StateView(turns=(earlier.model_copy(update={"amendments": news}),))
    assert valid("src/a.py:5-9 and src/a.py:20", ground(piece("src/b.py"), state=with_it, log=(GROWN,)))


def test_a_file_that_moved_is_listed_under_its_new_name_where_its_lines_are_now() -> None:
    moved = Amendment(2, "src/new.py", ChangeKind.MOVED, "d", source="src/a.py")
    gone = Amendment(3, "src/a.py", ChangeKind.REMOVED, None)
    on = ground(piece("src/a.py", "skeleton", SKELETON), log=(GROWN, moved, gone), lines={"src/new.py": 50})
    assert valid("src/new.py:17", on)
    assert not valid("src/new.py:14", on)


def test_names_without_an_ending_are_checked_too() -> None:
    on = ground(piece("Makefile"))
    assert said("Makefile:3, Makefile:4, Dockerfile:1; at 12:30 on host:80", on) == [
        ("Makefile:3-3", ""),
        ("Makefile:4-4", "the file has 3 lines"),
        ("Dockerfile:1-1", "no such file in this codex"),
    ]


def test_a_quoted_line_is_given_its_place_although_the_answer_names_none() -> None:
    on = ground(piece("src/a.py", text="# one\nvalue = compute(other)\n"))
    assert said("value = compute(other)", on) == [("src/a.py:2-2", "")]


def test_a_wrong_place_tells_why_and_a_right_one_keeps_its_old_shape() -> None:
    right, wrong = citations_of("src/a.py:1 src/a.py:99", ground(piece("src/a.py")))
    assert right.model_dump() == {"path": "src/a.py", "start": 1, "end": 1, "valid": True}
    assert wrong.model_dump()["why"] == "the file has 40 lines"


def test_an_answer_rests_on_what_it_cites_else_on_what_was_found_first() -> None:
    evidence = [Evidence(path=f"src/{name}.py", start=1, end=2, text="x\n") for name in "vwxyz"]
    on = ground(piece("src/a.py"), piece("src/b.py"))
    assert used_of(citations_of("src/a.py:1 src/a.py:2 nope.py:1", on), evidence) == ["src/a.py"]
    assert used_of(citations_of("I do not know.", on), evidence) == ["src/v.py", "src/w.py", "src/x.py"]


def test_a_quoted_line_of_a_changed_file_is_given_its_place_in_the_file_as_it_is_now() -> None:
    base = "".join(f"row_{number} = compute({number})\n" for number in range(40))
    first = Amendment(
        1, "src/a.py", ChangeKind.CHANGED, "d", "lines 1-2, in place of lines 1-1:\n# one\n# two\n", whole=False
    )
    second = Amendment(
        2, "src/a.py", ChangeKind.CHANGED, "e", "lines 5-5, added behind line 4:\n# three more\n", whole=False
    )
    on = ground(piece("src/a.py", text=base), log=(first, second), lines={"src/a.py": 42})
    assert said("row_2 = compute(2)", on) == [("src/a.py:4-4", "")]
    assert said("# three more", on) == [("src/a.py:5-5", "")]
    assert said("row_30 = compute(30)", on) == [("src/a.py:33-33", "")]


def test_what_the_user_selected_is_cited_where_it_stands() -> None:
    on = replace(ground(), selection=Passage("src/a.py", 3, "a line that was selected\nand one more of them"))
    assert said("and one more of them", on) == [("src/a.py:4-4", "")]


def test_an_attachment_that_says_what_is_selected_is_not_believed() -> None:
    """Its name and its sentence are as ours are; both are the client's."""
    told = "The user has src/a.py open. Selected is src/a.py:1-2:\n\nthis stands in no file"
    on = ground(state=StateView(attachments=(AttachmentView(name=NAME, text=told),)))
    assert said("this stands in no file", on) == []


# -- what the user points at

TEXT = "import os\n\n\ndef run():\n    return os.name\n"
DIGEST = hashlib.sha256(TEXT.encode()).hexdigest()


def standing():
    generation = Generation("demo", 1, TreeState(), (FileEntry("src/app/main.py", DIGEST, len(TEXT)),))
    return CodexState(
        name="demo",
        roots=("/src/demo",),
        generation=generation,
        view=CodexView(name="demo", root="/src/demo", generation=1),
        sizes=CoverageSizes(10, None, None),
        decision=CoverageDecision(Coverage.FULL, 1, 10, 100, "it fits"),
        tokens=10,
        files=Files({"src/app/main.py": 5}),
    )


def told(client, stands=True, text=TEXT):
    found = pointed(client, standing() if stands else None, lambda path, digest: text)
    return found.attachment.text if found else None


def test_a_selection_that_stands_in_the_codex_is_told_with_its_lines_under_the_codex_s_name():
    said = told({"file": "/src/demo/src/app/main.py", "selection": "def run():\n    return os.name\n"})
    assert said.startswith("The user has src/app/main.py open. Selected is src/app/main.py:4-5:\n\ndef run():")


def test_a_selection_that_was_not_saved_is_told_without_lines():
    assert "Selected is:\n\nx = 2" in told({"file": "main.py", "selection": "x = 2"})


def test_a_file_alone_is_named_and_one_outside_of_the_codex_as_it_was_given():
    assert told({"file": "main.py"}) == "The user has src/app/main.py open."
    assert told({"file": "/tmp/other.py"}) == "The user has /tmp/other.py open."
    assert told({"file": "main.py"}, stands=False) == "The user has main.py open."


def test_a_selection_without_a_file_is_told():
    assert told({"selection": "x = 1\n"}) == "Selected is:\n\nx = 1"


def test_a_selection_that_stands_in_the_codex_goes_with_its_place():
    client = {"file": "main.py", "selection": "\ndef run():\n    return os.name\n"}
    found = pointed(client, standing(), lambda path, digest: TEXT)
    assert found.selection == Passage("src/app/main.py", 4, "def run():\n    return os.name")


def test_a_selection_that_was_not_saved_or_of_no_file_of_the_codex_has_no_place():
    for client in ({"file": "main.py", "selection": "x = 2"}, {"selection": "def run():"}, {"file": "main.py"}):
        assert pointed(client, standing(), lambda path, digest: TEXT).selection is None


def test_a_terminal_tells_nothing():
    assert told({"cwd": "/src"}) is None
    assert told({"file": " \n", "selection": " "}) is None


def test_a_name_of_two_lines_is_one_line():
    assert told({"file": "a\nb.py"}) == "The user has a b.py open."


@given(st.lists(st.sampled_from(["a", "b", "c", "d"]), min_size=1, max_size=8), st.data())
def test_the_lines_are_those_at_which_the_selection_stands(lines, data):
    text = "".join(f"{line}\n" for line in lines)
    start = data.draw(st.integers(0, len(lines) - 1))
    end = data.draw(st.integers(start, len(lines) - 1))
    selection = "\n".join(lines[start : end + 1])
    places = [at for at in range(len(text)) if text.startswith(selection, at)]
    expected = (start + 1, end + 1) if len(places) == 1 else None
    assert lines_of(selection, text) == expected
