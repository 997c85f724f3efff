"""What can be wrong with what is loaded: the message says what and where, the exit status fits, the daemon goes on."""

import os
import signal

import pytest
from support.house import CODES, ask, begun, codebase, events, lent, question, reply, shown, until
from support.refusals import refusal


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
        yield daemon


@pytest.fixture(autouse=True)
def _goes_on(house):
    yield
    assert ask(house, "zebra", codex="vaults")["answer"].strip().startswith(CODES["zebra"])


@pytest.fixture
def folder(tmp_path):
    """A codex of one file."""
    place = tmp_path / "odd"
    place.mkdir()
    (place / "plain.py").write_text(f"# {question('badger')} 7135508.\n")
    return place


def loaded(house, folder, *options):
    """Loads it; the report, and that its one plain file can be asked about."""
    done = house.lore("load", folder, "--wait", "--no-watch", "--json", *options)
    assert done.returncode == 0, done.stderr
    codex = events(done.stdout)[-1]["codex"]
    assert ask(house, "badger", codex=codex["name"])["answer"].strip().startswith("7135508")
    assert house.lore("codex", "drop", codex["name"]).returncode == 0
    return codex


def test_a_path_that_is_missing_is_named(house, tmp_path):
    assert str(tmp_path / "nowhere") in refusal(house.lore("load", tmp_path / "nowhere"), 2)


def test_an_empty_folder_is_refused_and_nothing_is_left_of_it(house, tmp_path):
    words = refusal(house.lore("load", tmp_path), 2)
    assert str(tmp_path) in words
    assert [codex["name"] for codex in house.json("codex", "list")["codices"]] == ["vaults"]


def test_a_folder_in_which_everything_is_skipped_says_why(house, tmp_path):
    (tmp_path / "picture.bin").write_bytes(bytes(range(256)) * 10)
    assert "binary" in refusal(house.lore("load", tmp_path), 2)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_files_that_may_not_be_read_are_skipped_with_the_reason(house, folder):
    secret = folder / "secret.py"
    secret.write_text("x = 1\n")
    secret.chmod(0)
    assert loaded(house, folder)["skipped"] == {"unreadable": 1}


def test_links_that_lead_in_circles_are_no_hindrance(house, folder):
    (folder / "again").symlink_to(folder)
    (folder / "a").symlink_to(folder / "b")
    (folder / "b").symlink_to(folder / "a")
    assert loaded(house, folder)["files"] == 1


def test_a_file_of_a_gigabyte_is_skipped_unread(house, folder):
    with (folder / "huge.py").open("wb") as file:
        file.truncate(1 << 30)
    codex = loaded(house, folder)
    assert codex["files"] == 1
    assert sum(codex["skipped"].values()) == 1


def test_names_that_are_not_utf_8_are_loaded_or_skipped_and_can_be_listed(house, folder):
    (folder / os.fsdecode(b"caf\xe9.py")).write_text("# a file with an old name\n")
    codex = loaded(house, folder)
    assert codex["files"] + sum(codex["skipped"].values()) == 2


def test_a_taken_name_for_another_path_is_refused_and_another_proposed(house, tmp_path):
    other = codebase(tmp_path / "vaults", {"badger": "1"})
    words = refusal(house.lore("load", other), 1)
    assert "vaults" in words
    assert "--name" in words


def test_a_tier_that_does_not_exist_is_refused_with_those_that_do(house):
    assert "skeleton" in refusal(house.lore("load", house.folder / "vaults", "--tier", "gigantic"), 2)


def test_what_is_not_loaded_cannot_be_asked_shown_dropped_or_stopped(house):
    for command in (
        ("ask", "hello", "-c", "vaulds"),
        ("plan", "hello", "-c", "vaulds"),
        ("search", "hello", "-c", "vaulds"),
        ("codex", "show", "vaulds"),
        ("codex", "drop", "vaulds"),
        ("codex", "reload", "vaulds"),
        ("load", "--cancel", "vaulds"),
    ):
        assert "vaulds" in refusal(house.lore(*command), 5), command
    assert "vault" in refusal(house.lore("codex", "drop", "vault"), 5), "the beginning of a name drops nothing"
    assert "vaults" in refusal(house.lore("ask", "hello", "-c", "vaulds"), 5)


def test_a_dry_run_counts_and_loads_nothing(house, folder):
    done = house.lore("load", folder, "--dry-run", "--json")
    assert done.returncode == 0
    assert events(done.stdout)[-1]["codex"]["files"] == 1
    assert [codex["name"] for codex in house.json("codex", "list")["codices"]] == ["vaults"]


def test_ctrl_c_leaves_the_load_running_and_says_so(house, tmp_path):
    watching = begun(
        house, "load", codebase(tmp_path / "large", {"badger": "7135508"}, functions=120), "--wait", "--json"
    )
    assert watching.stdout.readline()
    watching.send_signal(signal.SIGINT)
    _, words = watching.communicate(timeout=60)
    assert watching.returncode == 130
    assert "the daemon goes on loading" in words
    listed = ("large", 1)  # before, it is listed without a generation
    until(lambda: listed in {(one["name"], one["generation"]) for one in reply(house, "/v1/codices")["codices"]})
    until(lambda: shown(house, "large")["prefill"] is None, timeout_s=120)
    assert ask(house, "badger", codex="large")["answer"].strip().startswith("7135508")
    assert house.lore("codex", "drop", "large").returncode == 0


def test_a_pipe_among_the_files_is_not_opened(house, folder):
    os.mkfifo(folder / "pipe.py")
    assert loaded(house, folder)["files"] == 1
