"""Lines and pages as people read them, also somebody who sees them for the first time."""

import json

import pytest

from orchestrator.cli.ask import Answer, Wait, cut
from orchestrator.cli.codex import being_computed, coverage, summary, taken_in
from orchestrator.cli.doctor import Check, lead
from orchestrator.cli.footer import answer_footer, citation_lines, code_state
from orchestrator.cli.model import model_page
from orchestrator.cli.plan import blocks, numbers, plan_page
from orchestrator.cli.search import hit_line, hit_text, how_many_hold
from orchestrator.cli.session import turns_page
from orchestrator.cli.stats import memory_page
from orchestrator.cli.status import codices, embedding_facts, engine_facts, model_facts, pools, roots
from orchestrator.cli.terminal import duration, facts, seconds, size, table
from orchestrator.wire.places import UNCONFIGURED


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 B"), (1023, "1023 B"), (1024, "1.0 KiB"), (5 * 1024**2, "5.0 MiB"), (3 * 1024**4, "3072.0 GiB")],
)
def test_bytes_have_binary_units(number, text):
    assert size(number) == text


def test_times_are_short():
    assert [seconds(12.3), seconds(1234), duration(61), duration(5)] == ["12 ms", "1.2 s", "1 min 01 s", "5 s"]


def test_columns_of_numbers_stand_right():
    assert table(("name", "n"), [("a", "1"), ("bb", "1,000")]) == "name      n\na         1\nbb    1,000"
    assert table(("root",), [("/src/two\nlines",)]) == "root\n/src/two\\nlines"


@pytest.mark.parametrize(
    ("codex", "text"),
    [
        ({"branch": "main", "revision": "1a2b3c4d5e"}, "main@1a2b3c4"),
        ({"branch": "main", "revision": "1a2b3c4", "amendments": ["a"]}, "main@1a2b3c4 + 1 changed file"),
        ({"revision": "1a2b3c4"}, "1a2b3c4"),
        ({"amendments": ["a", "b"]}, "+ 2 changed files"),
        ({"amendments": ["a", "b"], "removed": ["b"]}, "+ 1 changed, 1 removed file"),
        ({"amendments": ["a", "b"], "removed": ["a", "b"]}, "+ 2 removed files"),
        ({}, ""),
    ],
)
def test_the_state_of_the_code_is_one_phrase(codex, text):
    assert code_state(codex) == text


def test_the_footer_says_what_it_knows_and_no_more():
    assert answer_footer({}) == []
    assert answer_footer({"prompt": {"cached": 1, "computed": 2}}) == ["no codex · 1 tokens cached, 2 computed"]
    noticed = {"model": "builtin:quoter", "notice": "no GPU support in this build"}
    assert answer_footer(noticed)[-1] == "no GPU support in this build"


def test_the_footer_counts_notices_that_were_read_and_always_shows_those_of_this_answer_alone():
    lore = {"prompt": {}, "notices": ["nothing in demo answers to this", "demo: not followed"]}
    first, again = answer_footer(lore), answer_footer(lore, {"demo: not followed"})
    assert first[1:] == ["nothing in demo answers to this", "demo: not followed"]
    assert again == [f"{first[0]} · 1 notice as before", "nothing in demo answers to this"]


def test_the_footer_says_what_a_first_token_waited_for_where_that_took_seconds():
    def first(**timings):
        return answer_footer({"prompt": {}, "timings": timings})[0].rpartition(" · ")[2]

    waits = {"model_ms": 61_000.0, "queue_ms": 4_900.0, "floor_ms": 31_200.0}
    assert (
        first(ttft_ms=98_000.0, **waits)
        == "first token 98.0 s (1 min 01 s loading the model, 31 s computing the codex)"
    )
    assert first(ttft_ms=9_000.0, pause_ms=8_000.0) == "first token 9.0 s (8 s paused)"
    assert first(ttft_ms=13_000.0, queue_ms=12_000.0) == "first token 13.0 s (12 s in the queue)"
    assert first(ttft_ms=6_000.0, queue_ms=0.5, assemble_ms=90.0) == "first token 6.0 s"


LEFT_OUT = "left out: 1 turn (kept in the session), 2 passages; lore plan shows which"
ORDINARY = {
    "codex": {"name": "demo"},
    "strategy": {"name": "CAG", "tier": "full"},
    "prompt": {"cached": 10, "computed": 2},
    "timings": {"ttft_ms": 98.0},
    "citations": [{"path": "a.py", "start": 3, "valid": True}],
    "session": "plans",
    "began": True,
    "governor": {"actions": ["turn 1 left out"], "left_out": LEFT_OUT},
    "model": "gemma",
}


def test_the_footer_of_an_ordinary_answer_is_one_line_that_ends_with_what_was_left_out():
    begins = "demo · CAG (full) · 10 tokens cached, 2 computed · first token 98 ms · cites a.py:3"
    assert answer_footer(ORDINARY) == [f"{begins} · go on: -s plans · {LEFT_OUT}"]


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("began", [True, False])
def test_the_footer_names_a_session_that_is_new_or_was_named(named, began):
    (line,) = answer_footer({"prompt": {}, "session": "plans", "began": began}, named=named)
    said = {(True, True): "new session plans", (True, False): "session plans", (False, True): "go on: -s plans"}
    assert line.removeprefix("no codex · 0 tokens cached, 0 computed").removeprefix(" · ") == said.get(
        (named, began), ""
    )


def test_a_notice_that_also_is_an_action_is_said_once():
    told = {"notices": ["demo: not watched"], "governor": {"actions": ["demo: not watched"], "left_out": LEFT_OUT}}
    first, *others = answer_footer({"prompt": {}, **told})
    assert (first.endswith(LEFT_OUT), others) == (True, ["demo: not watched"])


def test_an_answer_that_is_cut_says_whether_more_may_be_allowed():
    def words(tokens, allowed):
        return cut(Answer(usage={"completion_tokens": tokens}), allowed)

    assert words(7, 7) == "cut at 7 tokens; --max-tokens allows more"
    assert words(5, 100_000) == "cut at 5 tokens"


def test_a_rate_is_shown_of_answers_that_are_long_enough_to_have_one():
    def footer(rate, took_ms):
        timings = {"ttft_ms": 100.0, "total_ms": 100.0 + took_ms, "tokens_per_second": rate}
        return answer_footer({"prompt": {}, "timings": timings})[0]

    assert footer(40.0, 500).endswith("first token 100 ms · 40.0 tokens/s")
    assert "tokens/s" not in footer(321.0, 14)  # five tokens
    assert "tokens/s" not in footer(10.0, 500)  # five tokens
    assert "tokens/s" not in footer(200.0, 150)


def test_a_codex_tells_files_that_are_gone_as_removed_not_as_changed():
    codex = {"generation": 3, "branch": "main", "revision": "1a2b3c4d", "amendments": 5}
    since = {"changed_files": ["a.py", "b.py"], "removed_files": ["b.py"]}
    assert taken_in({**codex, **since}) == "generation 3, main@1a2b3c4 + 1 changed, 1 removed file"
    assert taken_in({"generation": 1, "changed_files": [], "removed_files": []}) == "generation 1"


def test_the_footer_without_a_codex_names_no_strategy_and_what_only_quotes_is_said_in_short():
    answer = {"strategy": {"name": "NONE", "tier": "none"}, "prompt": {"cached": 1, "computed": 2}}
    assert answer_footer(answer) == ["no codex · 1 tokens cached, 2 computed"]
    line = answer_footer({"model": "builtin:quoter", "notice": f"{UNCONFIGURED}; model.threads is 9"})[-1]
    assert line.startswith("no model is configured: builtin:quoter only quotes; a real model: ")
    assert line.endswith("; model.threads is 9")


def test_a_wrong_place_is_marked_with_what_is_wrong() -> None:
    right = {"path": "a.py", "start": 3, "end": 4, "valid": True}
    wrong = {"path": "b.py", "start": 9, "end": 9, "valid": False, "why": "the file has 5 lines"}
    assert citation_lines([right, wrong, right]) == ["cites a.py:3, b.py:9 (the file has 5 lines)"]
    first, *others = answer_footer({"prompt": {}, "citations": [right, wrong, right]})
    assert (first.rpartition(" · ")[2], others) == ("cites a.py:3", ["cites b.py:9 wrongly: the file has 5 lines"])


def test_of_many_places_the_footer_names_the_first_three() -> None:
    cited = [{"path": "a.py", "start": line, "valid": True} for line in range(1, 6)]
    assert answer_footer({"prompt": {}, "citations": cited})[0].endswith(" · cites a.py:1, a.py:2, a.py:3 and 2 more")


def test_an_older_daemon_says_only_that_a_place_is_wrong() -> None:
    assert citation_lines([{"path": "b.py", "start": 9, "end": 9, "valid": False}]) == ["cites b.py:9 (not there)"]


def test_a_turn_that_was_not_saved_is_said_in_place_of_how_its_session_goes_on() -> None:
    kept = {"session": "plans", "began": True, "strategy": {}, "prompt": {}}
    assert any("go on: -s plans" in line for line in answer_footer(kept))
    lines = answer_footer({**kept, "not_kept": "no room left for sessions.sqlite3"})
    assert "this turn was not saved: no room left for sessions.sqlite3" in lines
    assert not any("go on" in line for line in lines)


def test_nothing_cited_gives_no_line() -> None:
    assert citation_lines([]) == []


def test_an_empty_answer_prints_nothing_and_says_so(lore, lorekeep):
    done = lore("ask", "mute")
    assert (done.returncode, done.stdout) == (0, "")
    assert "the model answered nothing" in done.stderr
    assert json.loads(lore("ask", "mute", "--json").stdout)["answer"] == ""


def test_a_wait_of_minutes_is_told_once_and_a_short_one_not(lore, lorekeep):
    told = lore("ask", "patience")
    assert told.stdout == "patience \n"
    assert told.stderr.startswith("computing the codex, 50 %, ")
    assert "left\n" in told.stderr.splitlines(keepends=True)[0]
    assert "computing" not in lore("ask", "hello").stderr
    assert lore("ask", "patience", "--json").stderr == ""


def test_a_wait_has_its_share_its_rate_and_the_time_that_is_left():
    wait = Wait()
    assert wait.line({"phase": "floor", "done": 0, "total": 20_000}, 0.0) == "computing the codex"
    at = {"phase": "floor", "done": 8_600, "total": 20_000, "left_s": 12.0}
    assert wait.line(at, 5.0) == "computing the codex, 43 %, 1,720 tokens/s, 12 s left"
    assert wait.line({"phase": "prompt", "done": 500, "total": 1_000}, 6.0) == "computing the prompt, 50 %"
    assert wait.line({"phase": "queue"}, 6.0) == "waiting in the queue"


def test_before_a_rate_is_measured_it_is_what_the_daemon_predicts():
    at = {"phase": "floor", "done": 4_000, "total": 10_000, "left_s": 6.0}
    assert Wait().line(at, 9.0) == "computing the codex, 40 %, 1,000 tokens/s, 6 s left"


def test_a_model_that_is_loading_has_its_percent_and_the_time_that_is_left():
    wait = Wait()
    assert wait.line({"phase": "model", "done": 0, "total": 100}, 0.0) == "loading the model"
    assert wait.line({"phase": "model", "done": 25, "total": 100}, 5.0) == "loading the model, 25 %, 15 s left"


QUEUE = {"running": 1, "waiting": 0}


def test_a_turn_without_text_is_shown_as_an_empty_one():
    turns = [{"role": "user", "text": "why?"}, {"role": "assistant"}]
    assert turns_page({"session": {"turns": turns}}) == "user: why?\n\nassistant:"


def test_a_piped_hit_has_the_number_of_the_line_that_it_prints():
    hit = {"path": "a.py", "start": 10, "end": 60, "line": 42, "snippet": "    run()\n    stop()"}
    assert hit_line(hit) == "a.py:42:run()"


def test_places_that_hold_what_was_quoted_are_told_from_those_that_hold_its_words():
    holding, other = {"score": 1.0, "exact": True}, {"score": 0.5, "exact": False}
    assert "holds it as it is" in hit_text(holding)
    assert "holds it" not in hit_text(other)
    assert how_many_hold([holding, other, other]) == (
        "1 of 3 places holds what was asked for as it is; the others only words of it"
    )
    assert how_many_hold([holding]) == how_many_hold([other]) == how_many_hold([]) == ""
    alike = {**other, "scores": {"vector": 0.7}}
    assert how_many_hold([holding, holding, alike]).endswith("the others only words of it, or what means the same")


def test_what_the_graph_adds_is_told_from_what_was_found():
    hit = {"path": "a.py", "start": 1, "end": 2, "score": 0.5, "snippet": "run()"}
    near = {**hit, "near": "used by b.py:3 (begin): run"}
    assert hit_line(near) == "a.py:1:run()  [near: used by b.py:3 (begin): run]"
    assert "near: used by b.py:3" in hit_text(near)
    assert "near" not in hit_line(hit) + hit_text(hit)
    assert how_many_hold([{**hit, "exact": True}, near]) == ""


def test_the_parts_of_the_window_are_all_of_it():
    strategy = {"window": 131_072, "available_tokens": 46_854, "used_tokens": 84_218}
    report = {"strategy": strategy, "prompt": {"tokens": 82_170}}
    words = "131,072 tokens: 82,170 of the prompt, 2,048 for the answer, 46,854 left"
    assert ("window", words) in list(numbers(report))


def test_a_plan_tells_how_long_a_window_may_be_and_why_no_longer():
    memory = {"where": "VRAM", "kv_bytes": 1 << 30, "weights": 0, "embedding_bytes": 0, "kv_loss": None}
    report = {"memory": {**memory, "window": 9_984, "bound_reason": "1.0 GiB of VRAM are left for KV"}}
    assert ("", "at most 9,984 tokens: 1.0 GiB of VRAM are left for KV") in list(numbers(report))


def test_a_plan_begins_with_why_asking_is_refused_and_ends_with_what_should_be_known():
    refusal = {"code": "not_found", "message": "nothing in demo answers", "hint": "use words of the code"}
    notices = ("no codex is loaded", "demo: not watched")
    page = plan_page({"refusal": refusal, "notices": notices, "governor": {"actions": ("demo: not watched",)}})
    assert page.startswith("lore ask refuses this: nothing in demo answers\n  use words of the code\n\n")
    assert page.endswith("\n\nno codex is loaded")


def test_a_plan_tells_what_the_words_say_and_what_they_may_bring_from_the_memories():
    intent = {"frame": "decision", "hints": {"fact": 0.5, "decision": 1.0}, "recency": 0.8, "entities": ["Redis"]}
    limits, tokens = {"decision": 8, "fact": 1, "procedure": 3}, {"decision": 3_500, "fact": 900, "procedure": 0}
    shown = [{"id": "00aa", "kind": "decision", "text": "Redis, for its speed"}]
    page = plan_page(
        {"intent": intent, "retrieval_plan": {"memories": limits, "memory_tokens": tokens}, "memories": shown}
    )
    assert page.splitlines() == [
        "no codex",
        "",
        "prompt     0 tokens: 0 cached, 0 to compute",
        "window     0 tokens: 0 of the prompt, 0 for the answer, 0 left",
        "",
        "memories   00aa decision: Redis, for its speed",
        "           looked for: at most 8 decisions (3,500 tokens), 1 fact (900 tokens)",
        "           the question was taken for: decision; about decision, fact; of late (0.8); names Redis",
    ]


def test_a_plan_for_a_greeting_says_that_nothing_is_looked_for():
    page = plan_page({"intent": {"frame": "conversation", "greeting": True}, "retrieval_plan": {"memories": {}}})
    assert [line.strip() for line in page.splitlines()[-3:]] == [
        "memories   none",
        "nothing is looked for",
        "the question was taken for: conversation; a greeting",
    ]


def test_a_plan_says_what_memories_share_once_there_is_little_of_it():
    room = {"used_tokens": 900, "threshold": 1_000, "skipped": False, "advice": "fetch little and sure"}
    full = plan_page({"intent": {"frame": "question"}, "prefetch": {**room, "pressure": 0.9}})
    assert full.endswith("90 % of the room beside the codex is used, 900 of 1,000 tokens: fetch little and sure")
    assert "room" not in plan_page({"intent": {"frame": "question"}, "prefetch": {**room, "pressure": 0.2}})


def test_a_plan_tells_its_decision_in_words_and_what_it_costs_before_that():
    strategy = {
        "name": "RAG",
        "tier": "map",
        "reason": "RAG, because 8 of 90 tokens are in the prefix; task rag_critical ('where is'); 70 of 100 are left",
        "steps": ["fetch", "cite"],
    }
    intent = {"task": "rag_critical", "because": "where is"}
    found = {"passages": ["a.py:1-9", "b.py:3-4"]}
    page = plan_page(
        {"codex": {"name": "demo"}, "strategy": strategy, "intent": intent, "retrieval_plan": found}
        | {"predicted": {"ttft_ms": 40}, "prompt": {"tokens": 30, "cached": 20, "computed": 10}}
    )
    assert page.splitlines() == [
        "demo",
        "",
        "prompt     30 tokens: 20 cached, 10 to compute",
        "predicted  first token in 40 ms",
        "window     0 tokens: 30 of the prompt, -30 for the answer, 0 left",
        "",
        "strategy   RAG (coverage map): passages are searched for in the archive",
        "why        8 of 90 tokens are in the prefix",
        "           70 of 100 are left",
        "           the question asks for facts, which are looked up: 'where is'",
        "steps      1. fetch",
        "           2. cite",
        "passages   a.py:1-9",
        "           b.py:3-4",
    ]


def test_a_plan_for_a_pasted_log_names_eight_of_its_names_and_how_many_more_there_are():
    page = plan_page({"intent": {"frame": "debug", "entities": [f"f{number}.py" for number in range(10)]}})
    assert page.endswith("names f0.py, f1.py, f2.py, f3.py, f4.py, f5.py, f6.py, f7.py and 2 more")


def test_an_empty_block_is_called_empty_and_not_computed():
    given = [
        {"kind": kind, "tokens": tokens, "cached": 0, "from": "computed"}
        for kind, tokens in (("karma", 0), ("query", 9))
    ]
    karma, query = blocks(given).splitlines()[1:]
    assert (karma.split(), query.split()[:4]) == (["karma", "0", "0", "empty"], ["query", "9", "0", "computed"])


def test_what_was_left_out_may_have_been_a_folder():
    codex = {"name": "x", "root": "/x", "files": 1, "tier": "full", "reason": "full, because it fits"}
    assert "  skipped   1 file or folder: 1 vendored" in summary({**codex, "skipped": {"vendored": 1}})
    assert "  skipped   3 files or folders: 2 binary, 1 vendored" in summary(
        {**codex, "skipped": {"vendored": 1, "binary": 2}}
    )


def test_a_load_that_returns_early_says_how_long_the_prefix_takes():
    assert being_computed(240.0).startswith("computing the codex, 4 min 00 s left; ")
    assert being_computed(None).startswith("computing the codex; ")


def test_what_is_computed_is_named_by_its_codex():
    engine = {"state": "ready", "answering": 1, "prefills": 0, "prefill": {"floor": "5" * 64, "codex": "demo"}}
    shown = facts(engine_facts(engine, QUEUE)).splitlines()
    assert "           computing a prompt of demo" in shown
    assert "queue      1 running, 0 waiting" in shown
    two = list(engine_facts({**engine, "prefills": 1}, {"running": 2, "waiting": 0}))
    assert ("queue", "2 running (1 answering, 1 computing a prompt), 0 waiting") in two
    alone = list(engine_facts({**engine, "prefill": {"floor": "5" * 64, "codex": ""}}, QUEUE))
    assert ("", "computing a prompt without a codex") in alone


def test_a_model_that_embeds_is_shown_without_kv_and_context():
    shown = model_page(
        {
            "id": "builtin:words",
            "path": "/m/words.gguf",
            "bytes": 4 << 20,
            "words": "for embedding.model alone: it gives vectors of texts and writes none",
            "name": "words",
            "architecture": "bert",
            "layers": 1,
            "quantisation": "F16",
            "vocabulary": 16_000,
            "embedding": {"dimensions": 256, "window": 2048},
        }
    )
    assert "vectors    256 dimensions" in shown
    assert "window     2,048 tokens of a text" in shown
    assert "size       4.0 MiB" in shown
    assert "use        for embedding.model alone" in shown
    assert "1 layer, F16" in shown
    assert "KV" not in shown
    assert "context" not in shown


def test_a_model_that_embeds_and_is_not_made_yet_is_shown_too():
    report = {"id": "builtin:words", "bytes": 4 << 20, "words": "w", "embedding": {"dimensions": 256, "window": 2048}}
    assert "vectors    256 dimensions" in model_page(report)


def test_the_embedding_models_memory_is_shown_and_why_it_is_away():
    model = {
        "model": "m.gguf",
        "dimensions": 384,
        "fault": "",
        "weights": 40 << 20,
        "buffers": 60 << 20,
        "gpu_layers": 0,
    }
    assert facts(embedding_facts({**model, "loaded": True})) == (
        "embedding  m.gguf, 384 dimensions, on the CPU, 100.0 MiB planned, loaded"
    )
    resting = {**model, "gpu_layers": 7, "loaded": False, "resting": "RAM is scarce", "notice": ""}
    away = facts(embedding_facts(resting)).splitlines()
    assert away[0].endswith("7 layers on the GPU, 100.0 MiB planned, not loaded now")
    assert away[1:] == ["           RAM is scarce"]
    shown = model_page(
        {"id": "m", "embedding": model | {"window": 512}, "memory": {"weights": 1 << 20, "buffers": 2 << 20}}
    )
    assert "memory     1.0 MiB of weights and 2.0 MiB of buffers beside the model" in shown


def test_a_pool_is_named_by_its_identity_and_its_whole_codex():
    counts = dict.fromkeys(("size", "free", "reserved", "evictable", "leased", "bytes"), 0)
    names = ("lorekeep@1a2b3c4d5e6f/a-codex-with-a-long-name", "lorekeep@1a2b3c4d5e6f/")
    shown = pools([{"name": name, **counts} for name in names]).splitlines()[1:]
    assert [row.split()[0] for row in shown] == ["lorekeep/a-codex-with-a-long-name", "lorekeep/none"]


def test_texts_that_cannot_be_embedded_are_counted():
    codex = {"name": "x", "embedding": {"texts": 9, "embedded": 9, "refused": 2, "fault": ""}, "root": "/x"}
    assert "x: 2 texts cannot be embedded: found by words alone" in codices([codex]).splitlines()
    assert len(codices([{**codex, "embedding": None}]).splitlines()) == 2


def test_a_codex_of_several_roots_shows_two_or_how_many_more():
    assert roots({"root": "/a", "roots": ["/a"]}) == "/a"
    assert roots({"root": "/a", "roots": ["/a", "/b"]}) == "/a, /b"
    assert roots({"root": "/a", "roots": ["/a", "/b", "/c"]}) == "/a +2"


def test_a_codex_that_is_not_resident_has_no_coverage_but_says_why():
    assert coverage({"tier": None, "fresh": "being loaded"}) == "being loaded"
    assert coverage({"tier": None, "fresh": "not loaded to the end"}) == "not loaded to the end"
    assert coverage({"tier": "none", "fresh": "watched"}) == "none"


def test_the_page_of_now_names_both_roots_of_a_codex():
    codex = {"name": "x", "tier": "map", "files": 2, "root": "/a", "roots": ["/a", "/b"]}
    assert "/a, /b" in codices([codex])
    assert "/a +2" in codices([{**codex, "roots": ["/a", "/b", "/c"]}])


def test_the_page_of_now_says_in_full_what_the_built_in_model_is_and_how_to_get_another():
    _, notice, way = model_facts({"name": "builtin:quoter", "notice": "it only continues text"})
    assert notice == ("", "it only continues text")
    assert "lore model use FILE.gguf" in way[1]


def test_an_empty_search_is_refused_in_words_of_the_command_line(lore):
    done = lore("search", " ")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'lore: the query is empty\n      lore search "words or a name"\n'


def test_what_is_no_fault_and_not_there_does_not_read_as_good():
    assert lead(Check("daemon", True, "no daemon listens", absent=True)) == "none"
    assert [lead(Check("git", ok, "")) for ok in (True, False)] == ["good", "BAD "]


def test_a_figure_stands_beside_its_target_and_one_that_was_not_measured_says_so():
    def figure(name, value, **more):
        whole = {"least": None, "most": None, "reached": None, "measured": 0, **more}
        return {"name": name, "says": "what it is", "value": value, **whole}

    page = memory_page(
        {
            "figures": [
                figure("relevance", 0.71, least=0.6, reached=True, measured=7),
                figure("budget_use", 0.2, least=0.5, most=0.9, reached=False, measured=30),
                figure("precision", 1.0, least=0.4, measured=1),
                figure("cold_build_ms", None, most=500.0),
                figure("overconfidence", -0.25, measured=4),
            ]
        }
    )
    assert [" ".join(line.split()) for line in page.splitlines()[1:]] == [
        "relevance 71 % > 60 % reached what it is (7 measured)",
        "budget used 20 % 50 % to 90 % missed what it is (30 measured)",
        "precision 100 % > 40 % too few yet what it is (1 measured)",
        "cold build not enough yet < 500 ms what it is",
        "confidence 25 % under what it is (4 measured)",
    ]
