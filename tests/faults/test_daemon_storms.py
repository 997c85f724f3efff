"""Many files change at once, in the ways that tools and people change them: what is told afterwards is what lies on disk.

The daemon's own watcher, git itself; no event is made by hand.
"""

import shutil
import subprocess

import pytest
from support.house import ask, begun, codebase, hits, living, question, reply, shown, until, write_vault

FILES = 150
SETTINGS = "[codex]\npoll = 0.5\nrebase_share = 1.0\n"


@pytest.fixture(scope="module")
def house(models):
    """A daemon that follows the repository `storm`: many files and a vault, two branches that differ in all of them."""
    with living(models, SETTINGS) as daemon:
        folder = codebase(daemon.folder / "storm", {"zebra": "1000001"}, functions=1)
        git(folder, "init", "-q", "-b", "main")
        write_modules(folder, "calm")
        git(folder, "add", ".")
        git(folder, "commit", "-q", "-m", "one")
        git(folder, "checkout", "-q", "-b", "other")
        write_modules(folder, "storm")
        write_vault(folder, "zebra", "2000002")
        git(folder, "commit", "-q", "-a", "-m", "two")
        git(folder, "checkout", "-q", "main")
        assert daemon.lore("load", folder, "--tier", "none").returncode == 0
        yield daemon


def git(folder, *arguments):
    who = ("-c", "user.name=t", "-c", "user.email=t@example.org", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", folder, *who, *arguments], check=True, capture_output=True)


def write_modules(folder, word):
    for number in range(FILES):
        (folder / f"module{number:03}.py").write_text(f"def module{number:03}():\n    return '{word}'\n")


def settled(house):
    """Nothing is being taken in any more."""
    codex = shown(house, "storm")
    return codex["fresh"] == "watched" and codex["unseen"] == ""


def taken_in(house):
    return [line for line in house.log.read_text().splitlines() if " applied" in line]


def told(house, query):
    return hits(house, query, "storm", 100)


def words(house):
    """The words of the modules that a search finds."""
    return {hit["snippet"].split("'")[1] for hit in told(house, "module") if "'" in hit["snippet"]}


def code(house):
    return ask(house, "zebra", codex="storm")["answer"].strip().rstrip(".")


def test_a_checkout_that_changes_every_file_is_taken_in_whole_and_so_is_the_way_back(house):
    folder = house.folder / "storm"
    until(lambda: settled(house))
    for branch, word, expected in (("other", "storm", "2000002"), ("main", "calm", "1000001")):
        before = taken_in(house)
        git(folder, "checkout", "-q", branch)
        until(lambda: words(house) == {word} and settled(house), timeout_s=120)  # noqa: B023
        assert code(house) == expected
        # A checkout that takes seconds, on a machine that is busy, is taken in while it goes on.
        assert len(taken_in(house)) <= len(before) + FILES // 20, "batches, not a file at a time"


def test_a_stash_takes_back_and_pop_brings_again(house):
    folder = house.folder / "storm"
    write_vault(folder, "zebra", "3000003")
    until(lambda: code(house) == "3000003")
    git(folder, "stash", "-q")
    until(lambda: code(house) == "1000001")
    git(folder, "stash", "pop", "-q")
    until(lambda: code(house) == "3000003")
    git(folder, "checkout", "-q", ".")
    until(lambda: code(house) == "1000001")


def test_a_file_that_is_replaced_by_a_rename_is_the_new_one(house):
    folder = house.folder / "storm"
    saved = write_vault(house.folder, "zebra", "4000004")
    saved.replace(folder / "zebra.py")
    until(lambda: code(house) == "4000004")
    git(folder, "checkout", "-q", ".")
    until(lambda: code(house) == "1000001")


def test_a_folder_that_is_renamed_takes_its_files_along(house):
    folder = house.folder / "storm"
    (folder / "before" / "deep").mkdir(parents=True)
    write_vault(folder / "before" / "deep", "heron", "5000005")
    until(lambda: any(hit["path"] == "before/deep/heron.py" for hit in told(house, question("heron"))))
    (folder / "before").rename(folder / "after")
    until(lambda: any(hit["path"] == "after/deep/heron.py" for hit in told(house, question("heron"))))
    assert not any(hit["path"].startswith("before/") for hit in told(house, question("heron")))
    write_vault(folder / "after" / "deep", "heron", "6000006")
    until(lambda: any("6000006" in hit["snippet"] for hit in told(house, question("heron"))))
    shutil.rmtree(folder / "after")
    until(lambda: not any("heron" in hit["path"] for hit in told(house, question("heron"))))


def test_a_rule_that_is_written_hides_and_one_that_is_removed_shows(house):
    folder = house.folder / "storm"
    write_vault(folder, "ibex", "7000007")
    until(lambda: any(hit["path"] == "ibex.py" for hit in told(house, question("ibex"))))
    (folder / ".gitignore").write_text("ibex.py\n")
    until(lambda: not any(hit["path"] == "ibex.py" for hit in told(house, question("ibex"))))
    (folder / ".gitignore").unlink()
    until(lambda: any(hit["path"] == "ibex.py" for hit in told(house, question("ibex"))))
    (folder / "ibex.py").unlink()
    until(lambda: not any(hit["path"] == "ibex.py" for hit in told(house, question("ibex"))))


def test_a_folder_that_is_gone_is_said_and_taken_up_again_when_it_is_back(house):
    folder = house.folder / "storm"
    folder.rename(house.folder / "away")
    until(lambda: shown(house, "storm")["fresh"] == "changes cannot be taken in")
    assert str(folder) in shown(house, "storm")["fresh_notice"]
    assert str(folder) in house.lore("status", "-v").stdout
    found = house.json("search", "module", "-c", "storm")
    assert any("cannot be taken in" in notice for notice in found["notices"])
    assert code(house) == "1000001", "what was loaded is still told"
    (house.folder / "away").rename(folder)
    until(lambda: settled(house))
    write_vault(folder, "zebra", "8000008")
    until(lambda: code(house) == "8000008")


def test_six_ask_while_a_load_runs_half_of_them_leave_and_nothing_hangs(house):
    folder = house.folder / "storm"
    write_modules(folder, "anew")
    loading = begun(house, "load", folder, "--json")
    assert loading.stdout.readline()
    asking = [
        begun(house, "ask", question("zebra"), "-c", "storm", "--max-tokens", "10", "--private") for _ in range(6)
    ]
    for process in asking[::2]:
        process.kill()
    for process in asking[::2]:
        process.communicate(timeout=120)
    for process in asking[1::2]:
        out, err = process.communicate(timeout=120)
        assert (process.returncode, out.strip().rstrip(".")[:7]) == (0, "8000008"), err
    loading.communicate(timeout=120)
    assert loading.returncode == 0
    until(lambda: reply(house, "/v1/status")["queue"] == {"running": 0, "waiting": 0})
    until(lambda: words(house) == {"anew"})
