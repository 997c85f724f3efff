"""`lore chat`: a conversation on a real terminal, and in a script."""

import json
import resource
import stat
import subprocess

import pytest
from private_daemon import LORE
from support.house import codebase, lent, question, remembered, reply, until
from terminals import terminal


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        folder = codebase(daemon.folder / "vaults")
        (folder / "endless.py").write_text("# The song is " + "round and " * 40 + "\n")
        assert daemon.lore("load", folder, "--wait", "--no-watch").returncode == 0
        yield daemon


def chat(house, *options, columns=80, **environment):
    return terminal(LORE, "chat", *options, environment={**house.environment, **environment}, columns=columns)


def asked(seen, line, *words):
    seen.prompt()
    seen.type(f"{line}\r")
    for one in words:
        seen.until(one)


def computed(house):
    return reply(house, "/v1/stats/cache")["tokens"]["computed"]


def left(seen):
    seen.prompt()
    seen.type("\x04")
    return seen.rest()


def test_a_person_asks_cancels_votes_leaves_and_goes_on(house):
    with chat(house, "--max-tokens", "20000") as seen:
        asked(seen, question("zebra"), "4815162", "vaults · CAG")
        asked(seen, "/why", "nowhere", "first token")
        asked(seen, "/files", "walrus.py", "zebra.py", "left out")
        asked(seen, "/bad it is another code", "has your vote: down")
        seen.prompt()
        seen.type("The song is\r")
        seen.until("round and round and round", timeout_s=60)
        seen.type("\x03")
        seen.until("cancelled; the conversation goes on")
        asked(seen, question("walrus"), "9273645", "vaults · CAG")
        seen.prompt()
        seen.type("\x03")
        seen.until("Ctrl-D or /quit leaves")
        assert "go on: lore chat --continue" in left(seen)
        assert seen.process.returncode == 0
    session, *_ = reply(house, "/v1/sessions")["sessions"]
    assert session["turns"] == 4  # what was cancelled is no turn
    with chat(house, "--continue") as seen:
        asked(seen, question("zebra"), "vaults · CAG")
        asked(seen, "/session", session["name"])
        left(seen)
    session, *_ = reply(house, "/v1/sessions")["sessions"]
    assert session["turns"] == 6


def test_good_and_bad_move_the_trust_of_the_memories_that_the_answer_had_and_a_note_is_proposed(house):
    added = house.json("memory", "add", "The caretaker of the vaults is Ada.")["memory"]
    trusts = [added["trust"]]
    with chat(house, "--max-tokens", "8") as seen:
        asked(seen, "Who is the caretaker of the vaults?", "Ada", "first token")
        for vote, told in (("/good", "vote: up"), ("/bad the caretaker is Grace", "vote: down")):
            asked(seen, vote, told)
            trusts.append(reply(house, f"/v1/memories/{added['id']}")["memory"]["trust"])
        proposed = seen.until("no model is shown it before lore memory confirm")
        left(seen)
    assert trusts[1] > trusts[0] > trusts[2]
    trace = reply(house, "/v1/traces/last")["trace"]
    proposals = remembered(house, "--state", "proposed")  # an answer of one sentence that was good is one, too
    (made,) = (one for one in proposals if one["source"] == f"trace:{trace['id']}" and "Grace" in one["text"])
    assert (trace["vote"], trace["note"], made["source"]) == ("down", "the caretaker is Grace", f"trace:{trace['id']}")
    assert f"proposed {made['id']}: The caretaker is Grace." in proposed
    for one in (added, *proposals):
        house.json("memory", "forget", one["id"])


def test_several_lines_pasted_or_typed_are_one_question_and_stay_in_the_history_of_this_user(house):
    with chat(house) as seen:
        asked(seen, f"\x1b[200~one\ntwo\x1b[201~\\\rthree\x1b\r{question('zebra')}", "vaults · CAG")
        left(seen)
    said = reply(house, "/v1/traces/last")["trace"]["question"]
    assert said == f"one\ntwo\nthree\n{question('zebra')}"
    history = house.folder / "state" / "lorekeep" / "chat-history"
    assert stat.S_IMODE(history.stat().st_mode) == 0o600
    assert "+three" in history.read_text().splitlines()


def test_up_and_ctrl_r_bring_back_what_was_asked_in_this_conversation_and_in_the_one_before(house):
    with chat(house) as seen:
        asked(seen, question("zebra"), "4815162", "vaults · CAG")
        asked(seen, question("walrus"), "9273645", "vaults · CAG")
        asked(seen, "\x1b[A\x1b[A", "4815162", "vaults · CAG")
        left(seen)
    with chat(house) as seen:
        asked(seen, "/session", "none yet")
        seen.prompt()
        seen.type("\x12vault zeb\x03")  # looked for, and not asked
        seen.type("\x12vault wal\r")
        seen.until("9273645")
        seen.until("vaults · CAG")
        asked(seen, "\x1b[A", "9273645", "vaults · CAG")
        left(seen)
    titles = [one["title"] for one in reply(house, "/v1/traces?n=5")["traces"]]
    vaults = ["walrus", "walrus", "zebra", "walrus", "zebra"]
    assert titles == [question(vault) for vault in vaults]


def test_ctrl_z_leaves_it_to_the_shell_and_fg_goes_on_with_the_line_that_was_begun(house):
    environment = {**house.environment, "PS1": "shell: ", "TERM": "xterm"}
    with terminal("bash", "--norc", "--noediting", "-i", environment=environment) as seen:
        seen.until("shell: ")
        seen.type(f"{LORE} chat\r")
        seen.prompt()
        seen.type(question("zebra"))
        seen.until(question("zebra"))
        seen.type("\x1a")
        seen.until("Stopped")
        seen.type("echo $((20 + 3)); fg\r")
        seen.until("23")
        seen.until(question("zebra"))
        seen.type("\r")
        seen.until("4815162")
        seen.until("vaults · CAG")
        seen.prompt()
        seen.type("\x04")
        seen.until("go on: lore chat --continue")
        seen.type("exit\r")
        seen.rest()


def test_hints_are_what_one_types_in_a_conversation(house):
    house.lore("load", codebase(house.folder / "others"), "--wait", "--no-watch")
    try:
        with chat(house) as seen:
            asked(
                seen,
                question("zebra"),
                "several codices are loaded",
                "name one (/codex NAME, or a client's model lore/NAME)",
            )
            asked(seen, f"/plan {question('zebra')}", "name one (/codex NAME")
            asked(seen, "/codex vaults", "a new session begins, on vaults")
            asked(seen, question("zebra"), "4815162", "vaults · CAG")
    finally:
        assert house.lore("codex", "drop", "others").returncode == 0


def test_a_disk_that_takes_no_more_costs_the_history_and_one_line_and_no_conversation(house):
    history = house.folder / "state" / "lorekeep" / "chat-history"
    with chat(house) as seen:
        asked(seen, "/help", "/quit")
        before = history.read_bytes()
        resource.prlimit(seen.process.pid, resource.RLIMIT_FSIZE, (0, 0))
        asked(seen, question("zebra"), "no history is kept", "4815162", "vaults · CAG")
        asked(seen, question("walrus"), "9273645", "vaults · CAG")
        left(seen)
    assert (seen.said.count(b"no history is kept"), seen.said.count(b"Traceback")) == (1, 0)
    assert (seen.process.returncode, history.read_bytes()) == (0, before)


def test_purge_lists_what_was_typed_and_deletes_it(house):
    history = house.folder / "state" / "lorekeep" / "chat-history"
    with chat(house) as seen:
        asked(seen, "/help", "/quit")
        left(seen)
    assert {"history"} < {one["name"] for one in json.loads(house.lore("purge", "--json").stdout)["kept"]}
    (purged,) = json.loads(house.lore("purge", "--history", "--yes", "--json").stdout)["purged"]
    assert (purged["name"], purged["count"] > 0, history.exists()) == ("history", True, False)
    assert house.lore("purge", "--history", "--yes").returncode == 0


def test_tab_completes_commands_files_and_symbols(house):
    with chat(house) as seen:
        seen.prompt()
        for typed, completed in [("/wh", "y"), ("walr", "us.py"), ("unlo", "ck")]:
            seen.type(f"{typed}\t")
            seen.until(completed)
            seen.type("\x03")
        seen.type("\x04")
        seen.rest()


def test_what_is_typed_is_computed_before_it_is_sent(house):
    long = "It is said in many words that something of this kind stands here. " * 8
    with chat(house, "--ahead") as seen:
        seen.prompt()
        before = computed(house)
        seen.type(long)
        until(lambda: computed(house) > before + 100)
        seen.type(f"{question('zebra')}\r")
        seen.until("vaults · CAG")
        left(seen)
    trace = reply(house, "/v1/traces/last")["trace"]
    assert trace["tokens"] - trace["cached"] < 40


def test_twenty_columns_are_enough(house):
    with chat(house, columns=20) as seen:
        asked(seen, question("zebra"), "4815162", "first token")
        asked(seen, "/help", "/quit")
        left(seen)
    assert b"Traceback" not in seen.said


def test_nothing_is_coloured_where_nobody_wants_it(house):
    with chat(house, NO_COLOR="1") as seen:
        asked(seen, question("zebra"), "4815162", "cites zebra.py:3")
        left(seen)
    answered = seen.said[seen.said.index(b"4815162") :]
    assert b"\x1b[2m" not in answered
    assert b"\x1b]8;" not in answered


def test_a_terminal_without_a_cursor_gets_no_sequence_but_that_of_progress(house):
    with chat(house, TERM="dumb") as seen:
        seen.until("> ")
        seen.type(f"{question('zebra')}\n")
        seen.until("cites zebra.py:3")
        seen.until("> ")
        seen.type("\x04")
        seen.rest()
    assert b"\x1b" not in seen.said.replace(b"\r\x1b[K", b"")


def test_a_script_gives_lines_and_gets_answers(house):
    asked = f"{question('zebra')}\nThe access code of \\\nvault walrus is\n/session\n"
    done = house.lore("chat", "--max-tokens", "10", input=asked)
    assert done.returncode == 0
    first, *_, session = done.stdout.strip().splitlines()
    assert first.strip() == "4815162."
    assert session in [one["name"] for one in reply(house, "/v1/sessions")["sessions"]]
    lines = house.lore(
        "chat", "--json", "--private", input=f"{question('zebra')}\n{question('walrus')}\n"
    ).stdout.splitlines()
    assert [json.loads(line)["answer"].strip()[:7] for line in lines] == ["4815162", "9273645"]


def test_files_names_the_memories_that_the_answer_had(house):
    added = house.json("memory", "add", "Never open the vault at night.", "--kind", "censor")["memory"]
    done = house.lore("chat", "--max-tokens", "2", "--private", input=f"{question('zebra')}\n/files\n")
    assert done.returncode == 0, done.stderr
    assert f"{added['id']} censor: Never open the vault at night." in done.stdout + done.stderr
    house.json("memory", "forget", added["id"])


def test_a_command_that_fails_ends_a_script_with_its_status(house):
    done = house.lore("chat", input="/why\nnever asked\n")
    assert done.returncode == 5
    assert "nothing is answered yet" in done.stderr
    assert house.lore("chat", "-c", "nowhere", input="x\n").returncode == 5


def test_who_reads_no_more_ends_it_quietly(house):
    script = (
        f"yes {question('zebra')!r} | {LORE} chat --max-tokens 10 --private 2>&1 | head -n 1; echo ${{PIPESTATUS[1]}}"
    )
    done = subprocess.run(["bash", "-c", script], env=house.environment, capture_output=True, text=True, check=True)
    answer, status = done.stdout.splitlines()
    assert "4815162" in answer
    assert status == "141"
    assert done.stderr == ""


def test_an_answer_on_a_terminal_is_markdown_with_links_and_plain_where_that_is_asked_for(house):
    ask = (LORE, "ask", "--max-tokens", "60", question("zebra"))
    with terminal(*ask, environment=house.environment) as seen:
        assert "4815162" in seen.rest()
    place = (house.folder / "vaults" / "zebra.py").as_uri()
    assert f"\x1b]8;;{place}\x1b\\zebra.py:3\x1b]8;;\x1b\\" in seen.said.decode()
    piped = house.lore(*ask[1:]).stdout
    with terminal(*ask, "--plain", environment=house.environment) as seen:
        assert piped in seen.rest().replace("\r", "")
    assert b"\x1b[J" not in seen.said
