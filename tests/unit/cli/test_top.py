"""`lore top`: the page for any terminal, what is asked of the daemon and when, and the view by its keys."""

import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator.cli.client import Daemon, Failure
from orchestrator.cli.top_feed import Known, chosen_codex, gathered, next_codex
from orchestrator.cli.top_page import beginning, cells, drawn_arms, ending, folded, head, memory, page, plain, visible
from orchestrator.cli.top_page import codex_line as drawn_codex
from orchestrator.wire import faults
from orchestrator.wire.picture import (
    BlockHits,
    BranchLine,
    CacheLine,
    CodexLine,
    FileCost,
    FileCosts,
    LevelLine,
    LoadLine,
    MemoryBar,
    Picture,
    QuestionLine,
    TicketLine,
    codex_line,
    shaped,
)

EMPTY: Any = SimpleNamespace(tickets=(), trees=())  # of a picture, all that a codex's line looks at
TEXTS = st.text(max_size=60)
COUNTS = st.integers(0, 10**7)
TICKETS = st.builds(
    TicketLine, number=COUNTS, codex=TEXTS, phase=st.sampled_from(["waiting", "restoring", "prefill", "answering"]),
    place=st.integers(0, 9), background=st.booleans(), ahead=st.booleans(), prompt=COUNTS, done=COUNTS,
    generated=COUNTS, most=COUNTS, waited_s=st.floats(0, 1e5), rate=st.none() | st.floats(0, 1e5),
    left_s=st.none() | st.floats(0, 1e5),
)  # fmt: skip
BRANCHES = st.builds(
    BranchLine, depth=st.integers(0, 5), kind=st.sampled_from(["floor", "tail"]), start=COUNTS, tokens=COUNTS,
    promised=COUNTS, bytes=COUNTS, used=st.booleans(),
)  # fmt: skip
PICTURES = st.builds(
    Picture,
    version=st.just("1.0"),
    model=TEXTS,
    notice=TEXTS,
    levels=st.builds(
        LevelLine, memory=st.sampled_from(["calm", "critical"]), power=st.just("normal"),
        pressure=st.none() | st.floats(0, 2), saving=TEXTS, window=st.none() | COUNTS, prefill_share=st.just(1.0),
        engine=st.just("ready"), reason=TEXTS, away=TEXTS,
    ),
    memory=st.lists(COUNTS, min_size=7, max_size=7).map(
        lambda parts: MemoryBar(
            "RAM", sum(parts), dict(zip(("others", "weights", "buffers", "floors", "tails", "room", "free"),
                                        parts, strict=True)), None,
        )
    ),
    codices=st.lists(
        st.builds(CodexLine, name=TEXTS, tier=st.none() | st.just("full"), files=COUNTS, tokens=COUNTS, kv_bytes=COUNTS,
                  fresh=TEXTS, done=st.none() | COUNTS, total=st.none() | COUNTS, left_s=st.none() | st.floats(0, 1e5),
                  load=st.none() | st.builds(LoadLine, phase=TEXTS, done=COUNTS, total=COUNTS, rate=st.just(1.0),
                                             left_s=st.none() | st.floats(0, 1e5))),
        max_size=2,
    ).map(tuple),
    trees=st.lists(
        st.builds(CacheLine, identity=TEXTS, codex=TEXTS, cells=COUNTS, floors=COUNTS, tails=COUNTS, room=COUNTS,
                  bytes=COUNTS, branches=st.lists(BRANCHES, max_size=4).map(tuple), left_out=st.integers(0, 3)),
        max_size=2,
    ).map(tuple),
    tickets=st.lists(TICKETS, max_size=3).map(tuple),
    questions=st.lists(
        st.builds(QuestionLine, trace=TEXTS, title=TEXTS, codex=TEXTS, created=st.just(0.0), tokens=COUNTS, cached=COUNTS,
                  computed=COUNTS, ttft_ms=st.floats(0, 1e6), rate=st.just(0.0), broke_at=TEXTS,
                  blocks=st.lists(st.builds(BlockHits, kind=st.just("query"), tokens=COUNTS, cached=COUNTS),
                                  max_size=6).map(tuple)),
        max_size=2,
    ).map(tuple),
    files=st.none() | st.builds(
        FileCosts, codex=TEXTS, tokens=COUNTS, bytes=COUNTS,
        lines=st.lists(st.builds(FileCost, path=TEXTS, level=st.just("full"), tokens=COUNTS, bytes=COUNTS),
                       max_size=3).map(tuple),
        left_out=st.integers(0, 3),
    ),
    sessions=COUNTS, hit_rate=st.none() | st.floats(0, 1), saved_ms=COUNTS, notes=st.lists(TEXTS, max_size=2).map(tuple),
)  # fmt: skip


# ---- the page --------------------------------------------------------------------------------------------------------


@given(PICTURES, st.integers(1, 140))
def test_no_line_is_wider_than_the_terminal_or_drives_it_whatever_was_asked_and_named(now: Picture, columns: int):
    for line in page(now, columns):
        text = plain(line)
        assert cells(text) <= columns
        assert not any(ord(char) < 32 or 127 <= ord(char) < 160 for char in text)


@given(PICTURES, st.integers(7, 140))
def test_the_bar_of_the_memory_is_as_wide_as_the_terminal(now: Picture, columns: int):
    bar = memory(now, columns)[0]
    assert len(plain(bar)) == columns if now.memory.whole else "nothing is known" in plain(bar)


@given(st.lists(st.integers(0, 1 << 40), min_size=1, max_size=9), st.integers(0, 200))
def test_a_part_that_is_not_empty_is_seen_where_there_is_a_column_for_each(parts: list[int], columns: int):
    shares = visible(parts, columns)
    assert sum(shares) == (columns if any(parts) else 0)
    if columns >= len(parts):
        assert [bool(share) for share in shares] == [bool(part) for part in parts]


@given(PICTURES, st.integers(20, 140), st.integers(1, 20), TEXTS)
def test_what_stands_above_the_panes_has_the_rows_that_it_may_have(now: Picture, columns: int, rows: int, fault: str):
    assert len(head(now, fault, columns, rows)) <= rows
    if fault:
        assert plain(head(now, fault, columns, rows)[0]).startswith("away:")


def test_wide_characters_are_cut_before_the_column_that_they_would_not_fit():
    assert (cells("漢字"), beginning("漢字", 3), cells("e\u0301")) == (4, "漢", 1)


@pytest.mark.parametrize(
    ("load", "words"),
    [
        ({"phase": "index", "done": 374, "total": 1_023, "eta_s": 4}, "indexing files, 374 of 1,023, 4 s left"),
        ({"phase": "walk", "done": 1_200, "total": 0}, "listing files, 1,200"),
        ({"phase": None, "done": 0, "total": 0}, "being loaded"),
        ({"phase": "prefill", "done": 1, "total": 2}, ""),
    ],
)
def test_a_load_that_runs_is_told_in_the_line_of_its_codex(load, words):
    line = codex_line(shaped({"name": "demo", "tier": None, "load": {"rate": 1.0, "eta_s": None, **load}}))
    assert plain(drawn_codex(line, EMPTY)) == f"demo  {', '.join(filter(None, (words, 'not built yet')))}"


def test_how_far_a_prefix_is_and_its_tokens_are_told_once():
    line = codex_line(
        shaped({"name": "demo", "tier": "map", "files": 9, "floor_tokens": 800, "kv_bytes": 2048, "fresh": "watched"})
    )
    computed = replace(line, done=80, total=800, left_s=3.0)
    alone = "demo  computing, 10 %, 3 s left, map, 800 tokens, 2.0 KiB, 9 files, watched"
    assert plain(drawn_codex(computed, EMPTY)) == alone
    job, tree = SimpleNamespace(codex="demo", phase="prefill"), SimpleNamespace(codex="demo", branches=("floor",))
    beside: Any = SimpleNamespace(tickets=(job,), trees=(tree,))
    assert plain(drawn_codex(computed, beside)) == "demo  computing, map, 9 files, watched"


def test_what_is_too_long_goes_on_below_and_a_path_keeps_its_end():
    line = ("flask", "bold"), ("  computes ahead, 20 %, 2,541 tokens/s, 2 s left", "computed")
    assert [plain(one) for one in folded(line, 30)] == ["flask  computes ahead, 20 %,", "  2,541 tokens/s, 2 s left"]
    assert folded(line, 80) == [line]
    assert ending("tests/unit/codex/outline/store.py", 16) == "…utline/store.py"


def test_a_tree_is_drawn_with_an_arm_for_each_sibling_below():
    assert drawn_arms([0, 1, 2, 1, 0]) == ["├─ ", "│  ├─ ", "│  │  └─ ", "│  └─ ", "└─ "]


# ---- what is asked ---------------------------------------------------------------------------------------------------


class Asked:
    """The daemon's client, with a note of each route."""

    def __init__(self, socket: object, gone: Mapping[str, int] | None = None) -> None:
        self.daemon, self.gone, self.routes = str(socket), gone or {}, list[str]()

    def call(self, method: str, route: str) -> Any:
        self.routes.append(route.partition("?")[0])
        if (status := self.gone.get(self.routes[-1])) is not None:
            raise Failure(status, "no such route")
        return Daemon(self.daemon).call(method, route)


def test_a_trace_and_files_are_asked_for_once_and_the_status_when_something_changed(lorekeep):
    asked: Any = Asked(lorekeep.socket)
    known = gathered(asked, Known())
    assert known.picture.version
    first = len(asked.routes)
    assert gathered(asked, known).picture == known.picture
    assert asked.routes[first:] == ["/v1/engine"]
    stale = replace(known, stale=True, status_at=float("-inf"))
    gathered(asked, stale)
    assert asked.routes[first + 1 :] == ["/v1/engine", "/v1/status", "/v1/stats/cache", "/v1/traces"]


@pytest.mark.parametrize("status", [faults.NOT_FOUND, faults.NOT_PERMITTED])
def test_a_daemon_that_has_a_part_of_it_alone_gives_the_rest_of_the_picture(lorekeep, status):
    asked: Any = Asked(lorekeep.socket, {"/v1/engine": status, "/v1/stats/cache": status, "/v1/traces": status})
    now = gathered(asked, Known()).picture
    assert (now.levels.memory, now.trees, now.questions) == ("calm", (), ())


def test_a_status_of_another_shape_is_a_fault_with_a_hint_and_no_traceback():
    with pytest.raises(Failure, match="another shape") as fault:
        _ = Known(status={"version": "9"}).picture
    assert "restart the daemon" in fault.value.hint


def test_the_codices_with_a_prefix_are_chosen_in_turn():
    known = Known(
        status={"codices": [{"name": "a", "tier": "full"}, {"name": "b", "tier": None}, {"name": "c", "tier": "map"}]}
    )
    assert [next_codex(known), next_codex(replace(known, codex="c")), next_codex(known, -1)] == ["c", "a", "c"]
    assert chosen_codex(Known(status={"codices": []})) is None


# ---- the command -----------------------------------------------------------------------------------------------------


def test_one_page_and_one_object_say_the_same(lore, lorekeep):
    shown, told = lore("top", "--once"), lore("top", "--once", "--json")
    assert (shown.returncode, told.returncode) == (0, 0)
    now = json.loads(told.stdout)
    assert now["version"] in shown.stdout
    assert sum(now["memory"]["parts"].values()) == now["memory"]["whole"]
    assert now.keys() == asdict(gathered(Daemon(str(lorekeep.socket)), Known()).picture).keys()


def test_without_a_terminal_it_is_one_page(lore, lorekeep):
    done = lore("top")
    assert (done.returncode, "memory calm" in done.stdout, "no terminal" in done.stderr) == (0, True, True)


def test_the_view_s_library_is_loaded_by_nothing_else():
    ask = "import sys, orchestrator.cli.top, orchestrator.cli.commands; print(*sys.modules)"
    loaded = subprocess.run(
        [sys.executable, "-P", "-c", ask], capture_output=True, text=True, check=True
    ).stdout.split()
    assert {"textual", "rich", "asyncio", "pydantic", "http.client"} & set(loaded) == set()
