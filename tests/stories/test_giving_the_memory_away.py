"""Somebody else needs the memory: the engine's process ends, nothing is lost, and the first question afterwards is warm.

One daemon on a stand-in driver serves most of it. What it does by itself is seen there too: others' memory grows until the
level is critical.
"""

import os
import signal
from pathlib import Path

import pytest
from support.house import (
    CODES,
    ask,
    begun,
    blocks,
    cached_whole,
    codebase,
    counters,
    engine_child,
    first_words,
    living,
    over_socket,
    question,
    reply,
    revived,
    until,
)
from support.nvml import GIB
from support.scarce_memory import FREE, leave_room_for_kv, on_a_card
from support.waiting import SOON

PAUSED, NOT_READY = 7, 8
COMPUTED = 500  # tokens of a floor, at the least


@pytest.fixture(scope="module")
def card(tmp_path_factory, models):
    with on_a_card(models, tmp_path_factory.mktemp("driver")) as (daemon, driver):
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        ask(daemon, "zebra")
        yield daemon, driver


@pytest.fixture
def driver(card):
    return card[1]


@pytest.fixture
def house(card):
    """The daemon, its engine there; however the story before left it."""
    running, _ = card
    reply(revived(running), "/v1/resume", {})
    until(lambda: is_there(running))
    yield running
    reply(revived(running), "/v1/resume", {})


def is_there(house):
    with over_socket(house) as http:
        return http.get("/readyz").is_success


def away(house):
    return reply(house, "/v1/status")["paused"]


def is_gone(house):
    now = away(house)
    return now is not None and now["gone"]


def is_alive(pid):
    return Path(f"/proc/{pid}").exists()


def warm(house):
    """A question finds its codex computed: on disk, or restored in advance."""
    answer = ask(house, "zebra")
    assert answer["answer"].strip().startswith(CODES["zebra"])
    assert blocks(answer["lore"])["codex"]["from"] in ("disk", "ram")
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] > 300


def test_a_pause_ends_the_engine_and_a_resume_finds_everything_on_disk(house):
    child = engine_child(house)
    paused = house.json("pause")
    assert (paused["away"]["gone"], paused["away"]["until"], is_alive(child)) == (True, None, False)
    status = reply(house, "/v1/status")
    assert (status["engine"]["state"], status["engine"]["pid"], status["engine"]["kv_bytes"]) == ("paused", None, 0)
    assert (status["paused"]["cause"], status["paused"]["why"]) == ("pause", "lore pause")
    assert "(lore pause); lore resume ends it" in house.lore("status").stdout
    with over_socket(house) as http:
        ready = http.get("/readyz")
        assert (ready.status_code, "lore resume ends it" in ready.json()["detail"]) == (503, True)
        assert "\nlorekeep_paused 1\n" in http.get("/metrics").text
    assert "back" not in house.lore("resume").stderr
    warm(house)
    assert away(house) is None


def test_while_it_is_paused_questions_wait_or_are_refused_and_what_needs_no_engine_works(house):
    house.json("pause", "--for", "2h")
    refused = house.lore("ask", question("zebra"), "--no-wait")
    assert (refused.returncode, "paused since" in refused.stderr) == (PAUSED, True), refused.stderr
    assert house.lore("plan", question("zebra")).returncode == PAUSED
    assert house.lore("model", "use", "builtin:noise-s").returncode == PAUSED
    late = house.lore("ask", question("zebra"), "--timeout", "0.1")
    assert (late.returncode, "lore resume ends it" in late.stderr) == (NOT_READY, True), late.stderr
    with over_socket(house) as http:
        asked = {"messages": [{"role": "user", "content": "x"}], "lore": {"wait": False}}
        answer = http.post("/v1/chat/completions", json=asked)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "paused")
        assert 7000 < int(answer.headers["Retry-After"]) <= 7200
    assert reply(house, "/v1/search", {"query": "zebra", "codex": "vaults"})["hits"]
    assert reply(house, "/v1/codices/vaults")["codex"]["name"] == "vaults"
    waiting = begun(house, "ask", question("walrus"), "--max-tokens", "10")
    assert "lore resume ends it; waiting" in waiting.stderr.readline()
    reply(house, "/v1/resume", {})
    out, _ = waiting.communicate(timeout=60)
    assert out.strip().startswith(CODES["walrus"])


def test_what_happens_is_told_as_events(house):
    with over_socket(house) as http, http.stream("GET", "/v1/events") as told:
        lines = told.iter_lines()
        next(lines)
        house.json("pause")
        assert any('"event":"away"' in line and '"cause":"pause"' in line for line in lines)
        reply(house, "/v1/resume", {})
        assert any('"event":"back"' in line for line in lines)


def test_pauses_add_up_and_a_resume_ends_all_of_them(house):
    reply(house, "/v1/pause", {"why": "training"})
    reply(house, "/v1/pause", {"why": "a game", "for": 0.2})
    until(lambda: away(house)["why"] == "training")
    reply(house, "/v1/pause", {"why": "a render", "for": "1h"})
    assert (away(house)["why"], away(house)["until"]) == ("training, a render", None)
    assert house.json("resume")["ended"] == ["training", "a render"]
    assert house.json("resume")["ended"] == []
    reply(house, "/v1/pause", {"for": 0.2})
    until(lambda: away(house) is None and is_there(house))


@pytest.mark.parametrize("wrong", ["soon", "-1", "0", "40d"])
def test_a_time_that_is_none_is_refused(house, wrong):
    refused = house.lore("pause", f"--for={wrong}")
    assert (refused.returncode, "for: " in refused.stderr) == (2, True)
    assert away(house) is None


# -- while a command runs


def test_a_command_runs_without_the_engine_and_its_status_is_returned(house):
    child = engine_child(house)
    done = house.lore("pause", "--", "sh", "-c", f"test -e /proc/{child} && exit 9; echo from the command; exit 3")
    assert (done.returncode, done.stdout) == (3, "from the command\n"), done.stderr
    until(lambda: away(house) is None)
    warm(house)


def test_a_command_that_cannot_be_started_pauses_nothing_or_resumes_at_once(house, tmp_path):
    (tmp_path / "no-program").write_text("x")
    damaged = tmp_path / "damaged"
    damaged.write_bytes(b"\x7fELF")
    damaged.chmod(0o700)
    assert house.lore("pause", "--", "").stderr.startswith("lore: '' is no command; nothing was paused")
    both = house.lore("pause", "--json", "--", "true")
    assert (both.returncode, both.stdout, away(house)) == (2, "", None)
    for command, status in (("no-such-command", 127), (tmp_path / "no-program", 126), (damaged, 126)):
        done = house.lore("pause", "--", command)
        assert (done.returncode, str(command) in done.stderr) == (status, True), done.stderr
        until(lambda: away(house) is None)


def held(house, script):
    """A command that is under way, the memory free."""
    process = begun(house, "pause", "--", "sh", "-c", script)
    first_words(process)
    assert away(house)["gone"]
    assert away(house)["why"] == "lore pause -- sh"
    return process


def test_signals_reach_the_command_and_its_end_by_one_is_told_as_a_shell_does(house):
    for then, status in (("exit 5", 5), ("kill -KILL $$", 128 + signal.SIGKILL)):
        process = held(house, f"trap '{then}' TERM; echo x; while :; do sleep 0.05; done")
        process.terminate()
        assert process.wait(SOON) == status
    until(lambda: away(house) is None)


def test_two_commands_at_once_stop_a_floor_in_the_middle_and_what_was_computed_of_it_is_kept(house):
    large = codebase(house.folder / "large", functions=500)
    house.json("load", large, "--no-watch")
    until(lambda: middle(house))
    both = [begun(house, "pause", "--", "sh", "-c", "echo x; exec sleep 300") for _ in range(2)]
    for process in both:
        first_words(process)
        assert away(house)["gone"]
    for process in both:
        assert away(house)["gone"], "the other one holds it"
        process.terminate()
        process.wait(SOON)
    until(lambda: away(house) is None)
    answer = ask(house, "walrus", codex="large")
    assert answer["answer"].strip().startswith(CODES["walrus"])
    assert counters(house)["tier_restored_tokens"] >= COMPUTED
    house.json("codex", "drop", "large")


def middle(house):
    """Whether a floor is computed in part."""
    return any(
        2 * COMPUTED < one["done"] < one["prompt"] and not one["most"] for one in reply(house, "/v1/engine")["tickets"]
    )


def test_a_client_that_is_killed_ends_its_pause(house):
    process = held(house, "echo x; exec sleep 300")
    os.kill(process.pid, signal.SIGKILL)
    until(lambda: away(house) is None)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    warm(house)


# -- by itself


def test_others_growth_ends_the_engine_and_a_question_or_a_calm_level_brings_it_back(house, driver):
    leave_room_for_kv(house, driver, GIB // 16)
    until(lambda: is_gone(house))
    left = away(house)
    assert (left["cause"], left["why"].startswith("others hold"), left["until"]) == ("pressure", True, None)
    assert ask(house, "zebra")["answer"].strip().startswith(CODES["zebra"])  # the model comes back for who asks
    driver.show(free=FREE)
    until(lambda: reply(house, "/v1/status")["governor"]["level"] == "calm")
    leave_room_for_kv(house, driver, GIB // 16)
    until(lambda: is_gone(house))
    driver.show(free=FREE)
    until(lambda: away(house) is None)
    warm(house)


# -- the daemon ends


def test_a_command_goes_on_beside_a_daemon_that_is_killed_and_keeps_the_next_one_paused(house):
    process = held(house, "echo x; exec sleep 300")
    house.kill()
    house.start()
    assert is_gone(house)
    until(lambda: away(house) is not None and away(house)["until"] is None)  # its client has come back
    os.killpg(process.pid, signal.SIGTERM)
    assert process.wait(SOON) == 128 + signal.SIGTERM
    until(lambda: away(house) is None)
    warm(house)


def test_a_daemon_that_is_killed_while_the_engine_leaves_has_lost_nothing(house):
    answering = begun(house, "ask", "tick tock " * 6 + "tick", "-c", "none", "--max-tokens", "2000")
    first_words(answering)
    pausing = begun(house, "pause", "--for", "1h")
    until(lambda: away(house) is not None)
    then = away(house)["until"]
    house.kill()
    assert (answering.wait(SOON), pausing.wait(SOON)) != (0, 0)
    house.start()  # systemd hears that it is ready although there is no model
    assert (is_gone(house), away(house)["until"], reply(house, "/v1/status")["engine"]["pid"]) == (True, then, None)
    assert house.lore("ask", question("zebra"), "--no-wait").returncode == PAUSED
    assert house.lore("codex", "show", "vaults").returncode == PAUSED
    house.json("resume")
    warm(house)


# -- by itself


def test_a_model_that_nobody_asks_leaves_the_memory_and_the_next_question_finds_its_floor(models):
    with living(models, '[governor]\nidle_unload = "0.3 s"\n') as idle:
        idle.json("load", codebase(idle.folder / "vaults"), "--wait")
        first = ask(idle, "zebra")
        until(lambda: has_left(idle))
        assert reply(idle, "/v1/engine")["weight_bytes"] is None
        again = ask(idle, "walrus")
        assert again["answer"].strip().startswith(CODES["walrus"])
        assert first["lore"]["codex"]["generation"] == again["lore"]["codex"]["generation"]
        assert cached_whole(again["lore"], "identity", "codex"), "restored, not computed"
        until(lambda: has_left(idle))


def has_left(house):
    """Because nobody asks, and until somebody does."""
    found = away(house) or {}
    return (found.get("cause"), found.get("gone"), found.get("until")) == ("idle", True, None)
