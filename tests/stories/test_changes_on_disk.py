"""A file changes: the next answer knows it, and costs the change and the question, wherever in the codex the file stood."""

import shutil
import subprocess

import pytest
from support.house import CODES, ask, blocks, codebase, hits, lent, question, shown, until, write_vault

from codex.trees.lore_file import LORE_FILE
from orchestrator.codices.known_lines import MOVED


@pytest.fixture(scope="module")
def running(shared_daemon):
    with lent(shared_daemon) as daemon:
        yield daemon


@pytest.fixture
def house(running):
    """The daemon with a fresh codex `vaults`, which it follows. Its generation stays, however slow the machine: a new one,
    made as soon as nobody asks for a moment, would compute more anew, behind what changes, than the changes cost."""
    folder = codebase(running.folder / "vaults", functions=30)
    (folder / "steps.py").rename(folder / "zoo.py")
    (folder / LORE_FILE).write_text("rebase_share = 1.0\n")
    assert running.lore("load", folder, "--wait").returncode == 0
    yield running
    assert running.lore("codex", "drop", "vaults").returncode == 0
    shutil.rmtree(folder)


def amended(daemon, vault, code):
    """Writes the vault's new code; returns when the daemon has taken it in."""
    before = shown(daemon, "vaults")["amendments"]
    write_vault(daemon.folder / "vaults", vault, code)
    until(lambda: (now := shown(daemon, "vaults"))["amendments"] > before and not now["prefill"])


def test_a_new_conversation_sees_the_latest_value_and_computes_the_amendment_and_its_own_tokens(house):
    first = ask(house, "zebra")
    assert first["answer"].strip().startswith(CODES["zebra"])
    for code in ("1029384", "5647382"):
        amended(house, "zebra", code)
        answer = ask(house, "zebra")
        assert answer["answer"].strip().startswith(code)
        assert answer["lore"]["codex"]["amendments"] == ["zebra.py"]
        assert answer["lore"]["codex"]["generation"] == first["lore"]["codex"]["generation"]
        added = blocks(answer["lore"])["codex"]["tokens"] - blocks(first["lore"])["codex"]["tokens"]
        own = sum(blocks(answer["lore"])[kind]["tokens"] for kind in ("environment", "karma", "state", "query"))
        assert added < 300
        assert answer["lore"]["prompt"]["computed"] <= added + own


def test_token_counts_are_those_after_the_change_or_say_that_they_are_of_before(house):
    before, planned = shown(house, "vaults"), house.json("plan", "x")["strategy"]["content_tokens"]
    amended(house, "zebra", "4455667")
    after = shown(house, "vaults")
    more = after["amended_tokens"]
    assert more > 0
    assert after["tier_tokens"] == before["tier_tokens"] + more
    assert after["kv_bytes"] > before["kv_bytes"]
    assert house.json("plan", "x")["strategy"]["content_tokens"] == planned + more
    words = f"full {before['tokens']['full']:,}, skeleton {before['tokens']['skeleton']:,}"
    page = house.lore("codex", "show", "vaults").stdout
    assert words in page
    assert f", before the changes, which take {more:,}\n" in page


def test_the_answer_cites_the_line_of_the_changed_file(house):
    amended(house, "zebra", "7711223")
    answer = ask(house, "zebra")
    assert {"path": "zebra.py", "start": 3, "end": 3, "valid": True} in answer["lore"]["citations"]


def test_a_running_session_is_told_at_the_end_of_its_state_and_keeps_its_prefix(house):
    first = ask(house, "walrus")
    name = first["lore"]["session"]
    amended(house, "walrus", "3141592")
    answer = ask(house, "walrus", session=name)
    assert answer["answer"].strip().startswith("3141592")
    assert blocks(answer["lore"])["codex"]["tokens"] == blocks(first["lore"])["codex"]["tokens"]
    own = sum(blocks(answer["lore"])[kind]["tokens"] for kind in ("state", "query"))
    assert answer["lore"]["prompt"]["computed"] <= own
    assert answer["lore"]["broke_at"] is None


def test_a_removed_file_and_a_new_one_are_told_too(house):
    folder = house.folder / "vaults"
    amended(house, "badger", "2468013")
    assert ask(house, "badger")["answer"].strip().startswith("2468013")
    before = shown(house, "vaults")["amendments"]
    (folder / "badger.py").unlink()
    until(lambda: shown(house, "vaults")["amendments"] > before)
    assert "This file was removed." in house.lore("plan", question("badger"), "--prompt").stdout


def test_search_finds_what_the_file_says_now(house):
    amended(house, "walrus", "8008135")
    snippets = [hit["snippet"] for hit in house.json("search", "access code walrus", "-n", "3")["hits"]]
    assert any("8008135" in snippet for snippet in snippets)
    assert not any(CODES["walrus"] in snippet for snippet in snippets)


def test_status_says_that_the_codex_is_watched(house):
    codex = shown(house, "vaults")
    assert codex["fresh"].startswith("watched")


def test_a_codex_that_is_not_followed_says_so_and_which_files_differ_until_it_is_loaded_again(house):
    folder = codebase(house.folder / "still", {"badger": "1111222"}, functions=1)
    assert house.lore("load", folder, "--no-watch", "--wait").returncode == 0
    assert shown(house, "still")["fresh"] == "not watched"
    same = house.json("search", "access code", "-c", "still")
    assert [left_alone(notice) for notice in same["notices"]] == [True]
    write_vault(folder, "badger", "3333444")
    answer = ask(house, "badger", codex="still")
    assert answer["answer"].strip().startswith("1111222")
    differs = "1 file that is shown differs on disk: badger.py"
    assert [left_alone(notice) or notice == differs for notice in answer["lore"]["notices"]] == [True, True]
    assert [left_alone(notice) for notice in answer["lore"]["lasting"]] == [True]
    found = house.lore("search", "access code", "-c", "still")
    assert "1111222" in found.stdout
    assert differs in found.stderr
    assert house.lore("load", folder, "--no-watch", "--wait").returncode == 0
    assert ask(house, "badger", codex="still")["answer"].strip().startswith("3333444")


def left_alone(notice):
    return "not followed since 20" in notice


def test_a_revision_that_has_moved_is_told(house, tmp_path):
    folder = codebase(tmp_path / "pushed", {"badger": "1111222"}, functions=1)
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    commit = [*identity, "commit", "-q", "-a", "-m", "badger"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], commit):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    assert house.lore("load", folder, "--revision", "main", "--wait").returncode == 0
    until(lambda: shown(house, "pushed")["fresh"] == "not watched")
    assert house.json("search", "access code", "-c", "pushed")["notices"] == []
    write_vault(folder, "badger", "3333444")
    subprocess.run(["git", "-C", str(folder), *commit], check=True)
    (notice,) = house.json("search", "access code", "-c", "pushed")["notices"]
    assert notice.startswith("main has moved since (")
    assert notice in ask(house, "badger", codex="pushed")["lore"]["notices"]
    assert house.lore("codex", "drop", "pushed").returncode == 0


def large(folder, first_line):
    """About 4,000 tokens behind one import, and the badger's code in the last line."""
    bodies = "".join(f"def stride_{number}(value):\n    return value - {number}\n\n\n" for number in range(250))
    path = folder / "large.py"
    path.write_text(f"{first_line}\n\n\n{bodies}# {question('badger')} 1357911.\n")
    return path


def test_a_changed_import_of_a_large_file_costs_a_few_lines_and_places_below_it_are_right(house):
    folder = house.folder / "vaults"
    large(folder, "import os")
    assert house.lore("load", folder, "--wait").returncode == 0
    first = ask(house, "badger", codex="vaults")
    assert first["answer"].strip().startswith("1357911")
    lines = large(folder, "import os\nimport re\nimport sys").read_text().count("\n")
    until(lambda: (now := shown(house, "vaults"))["amendments"] == 1 and not now["prefill"])
    assert shown(house, "vaults")["amended_tokens"] < 150
    answer = ask(house, "badger", codex="vaults")
    assert answer["answer"].strip().startswith("1357911")
    assert {"path": "large.py", "start": lines, "end": lines, "valid": True} in answer["lore"]["citations"]
    added = blocks(answer["lore"])["codex"]["tokens"] - blocks(first["lore"])["codex"]["tokens"]
    own = sum(blocks(answer["lore"])[kind]["tokens"] for kind in ("environment", "karma", "state", "query"))
    assert 0 < added < 150
    assert answer["lore"]["prompt"]["computed"] <= added + own


def test_a_branch_that_changes_no_file_is_shown_all_the_same(house):
    folder = house.folder / "vaults"
    identity = ["-c", "user.name=t", "-c", "user.email=t@t"]
    for words in (["init", "-q", "-b", "main"], ["add", "."], [*identity, "commit", "-q", "-m", "first"]):
        subprocess.run(["git", "-C", str(folder), *words], check=True)
    assert house.lore("load", folder, "--wait").returncode == 0
    assert shown(house, "vaults")["branch"] == "main"
    searched = ("search", "zebra", "-c", "vaults")
    assert {hit["branch"] for hit in house.json(*searched)["hits"]} == {"main"}
    subprocess.run(["git", "-C", str(folder), "checkout", "-q", "-b", "kiwi"], check=True)
    until(lambda: shown(house, "vaults")["branch"] == "kiwi")
    assert shown(house, "vaults")["state"].startswith("kiwi@")
    assert ask(house, "zebra", codex="vaults")["lore"]["codex"]["branch"] == "kiwi"
    assert {hit["branch"] for hit in house.json(*searched)["hits"]} == {"kiwi"}


def test_lines_that_a_map_lists_are_told_to_have_moved(running):
    folder = codebase(running.folder / "ladder", functions=60)
    (folder / LORE_FILE).write_text("rebase_share = 1.0\n")
    assert running.lore("load", folder, "--wait", "--tier", "map").returncode == 0
    (folder / "steps.py").write_text("# one\n# two\n# three\n# four\n# five\n" + (folder / "steps.py").read_text())
    until(lambda: shown(running, "ladder")["amendments"])
    answer = running.json("ask", f"Where is step_6? {MOVED}", "-c", "ladder", "--max-tokens", "40")
    assert answer["answer"].strip() == "5-237 by +5"  # the first function was told whole
    assert running.lore("codex", "drop", "ladder").returncode == 0


def test_what_was_changed_and_changed_back_leaves_the_prompt_with_one_new_generation(running):
    folder = codebase(running.folder / "orbit", functions=30)
    (folder / LORE_FILE).write_text("rebase_share = 0.01\n")
    assert running.lore("load", folder, "--wait").returncode == 0
    write_vault(folder, "zebra", "1029384")
    until(lambda: shown(running, "orbit")["amendments"])
    write_vault(folder, "zebra", CODES["zebra"])
    until(lambda: any(CODES["zebra"] in hit["snippet"] for hit in hits(running, question("zebra"), "orbit", 10)))
    until(lambda: shown(running, "orbit")["amended_tokens"] == 0 and shown(running, "orbit")["fresh"] == "watched")
    made = [line for line in running.log.read_text().splitlines() if "codex orbit moved to" in line]
    assert 1 <= len(made) <= 2, "one for the change, if it was idle for long enough, and one for the way back"
    assert ask(running, "zebra", codex="orbit")["answer"].strip().startswith(CODES["zebra"])
    assert running.lore("codex", "drop", "orbit").returncode == 0
