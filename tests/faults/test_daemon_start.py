"""What can be wrong when a daemon starts, and when none runs: each with its message and its exit status."""

import json
import os
import select
import signal
import socket
import tempfile
from pathlib import Path

import pytest
from support.forks import ForkedDaemon
from support.house import codebase, engine_child, lent, question, reply, revived
from support.refusals import refusal
from support.waiting import SOON


@pytest.fixture
def nobody(models, tmp_path):
    """A daemon that is not started."""
    with tempfile.TemporaryDirectory(prefix="lore-") as folder:
        daemon = ForkedDaemon(Path(folder), models=models)
        yield daemon
        daemon.stop()


@pytest.fixture(scope="module")
def shared(shared_daemon):
    with lent(shared_daemon) as daemon:
        yield daemon


@pytest.fixture
def somebody(shared):
    """A daemon that runs, however the test before it has left it."""
    return revived(shared)


def serve(daemon, *options):
    """`lore serve` run to its end: what keeps it from starting."""
    return daemon.lore("serve", "--socket", daemon.socket, *options)


# -- the model


def test_without_a_model_it_starts_on_the_built_in_one_and_says_so_wherever_an_answer_appears(somebody):
    model = reply(somebody, "/v1/status")["model"]
    assert (model["name"], "no model is configured" in model["notice"]) == ("builtin:quoter", True)
    assert "no model is configured" in somebody.lore("ask", question("zebra"), "--max-tokens", "4").stderr
    assert "no model is configured" in somebody.json("ask", "hello there", "--max-tokens", "4")["lore"]["notice"]


def test_a_model_that_is_missing_is_named(nobody):
    words = refusal(serve(nobody, "--model", nobody.folder / "none.gguf"), 2)
    assert f"there is no model file {nobody.folder / 'none.gguf'}" in words
    assert "--model" in words


def test_a_file_that_is_no_gguf_is_refused_as_a_model(nobody):
    letter = nobody.folder / "letter.gguf"
    letter.write_text("Dear reader,\n" * 100)
    assert f"{letter} cannot be used as a model" in refusal(serve(nobody, "--model", letter), 2)


def test_a_folder_is_no_model(nobody):
    assert f"{nobody.folder} is not a file" in refusal(serve(nobody, "--model", nobody.folder), 2)


@pytest.mark.parametrize("share", [0.001, 0.99])
def test_a_truncated_model_is_refused_before_llama_cpp_sees_it(nobody, quoter_model, share):
    whole = quoter_model.read_bytes()
    short = nobody.folder / "short.gguf"
    short.write_bytes(whole[: int(len(whole) * share)])
    assert f"{short} cannot be used as a model" in refusal(serve(nobody, "--model", short), 2)


def test_an_unknown_built_in_model_is_refused_with_those_that_there_are(nobody):
    words = refusal(serve(nobody, "--model", "builtin:oracle"), 2)
    assert "oracle" in words
    assert "quoter" in words


def test_an_embedding_model_that_cannot_be_had_is_warned_of_and_the_daemon_serves(nobody):
    nobody.environment["LORE_EMBEDDING__MODEL"] = "builtin:word"
    nobody.start()
    warnings = [line for line in nobody.log.read_text().splitlines() if '"warning"' in line]
    assert any("search by meaning is off" in line and "builtin:words" in line for line in warnings)
    assert nobody.lore("status").returncode == 0


# -- settings


def test_an_unknown_setting_is_refused_with_the_nearest_known_one(nobody):
    place = nobody.folder / "config" / "lorekeep"
    place.mkdir(parents=True, mode=0o700)
    (place / "config.toml").write_text("[model]\ncontxt = 4096\n")
    words = refusal(serve(nobody), 2)
    assert "contxt" in words
    assert "context" in words


# -- sockets


def test_without_a_daemon_a_command_ends_with_3_and_the_line_that_starts_one(nobody):
    for command in (
        ("ask", "hello"),
        ("status",),
        ("load", "."),
        ("search", "x"),
        ("codex", "list"),
        ("plan", "hello"),
    ):
        words = refusal(nobody.lore(*command), 3)
        assert f"no daemon listens at {nobody.socket}" in words
        assert "lore serve" in words


def test_the_socket_of_a_dead_daemon_is_no_daemon_for_a_command_and_no_hindrance_for_the_next_one(somebody):
    somebody.stop()
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(somebody.socket))
    assert somebody.socket.exists()
    assert "lore serve" in refusal(somebody.lore("status"), 3)
    somebody.start()
    assert somebody.lore("status").returncode == 0


def test_a_killed_daemon_leaves_its_socket_and_no_child_behind_and_the_next_one_starts(somebody):
    child = engine_child(somebody)
    ending = os.pidfd_open(child)
    somebody.kill()
    assert somebody.socket.exists()
    refusal(somebody.lore("status"), 3)
    assert ended(ending), "the engine's child ends by itself"
    somebody.start()
    assert somebody.lore("status").returncode == 0


def test_a_second_daemon_on_the_same_socket_is_refused_and_the_first_goes_on(somebody):
    words = refusal(serve(somebody), 1)
    assert str(somebody.socket) in words
    assert somebody.lore("status").returncode == 0


def test_a_second_daemon_on_the_same_folders_is_refused_whatever_its_socket_and_the_first_goes_on(somebody):
    place = somebody.folder / "run" / "other.sock"
    words = refusal(serve(somebody, "--socket", place), 1)
    assert f"a daemon (pid {somebody.process.pid}) already uses {somebody.folder / 'data' / 'lorekeep'}" in words
    assert f"--socket {somebody.socket}" in words
    assert not place.exists()
    found = {one["name"]: one for one in nobody_listens(somebody, place)["checks"]}
    assert f"pid {somebody.process.pid}" in found["daemon"]["detail"]
    assert str(somebody.socket) in found["daemon"]["fix"]
    assert "may be using it" in refusal(somebody.lore("model", "drop", "any", "--yes", "--socket", place), 1)
    assert somebody.lore("status").returncode == 0
    somebody.kill()
    somebody.start("--socket", str(place))
    try:
        assert somebody.lore("status", "--socket", place).returncode == 0
    finally:
        somebody.stop()


def nobody_listens(daemon, place):
    """The doctor's words on a socket that nobody serves."""
    return json.loads(daemon.lore("doctor", "--json", "--socket", place).stdout)


def test_what_the_daemon_writes_is_its_owner_s_alone_and_its_socket_is_gone_after_a_clean_stop(somebody):
    assert somebody.socket.stat().st_mode & 0o777 == 0o600
    assert somebody.lore("load", codebase(somebody.folder / "vaults"), "--wait").returncode == 0
    assert somebody.stop() == 0
    assert not somebody.socket.exists()
    places = [somebody.folder / name / "lorekeep" for name in ("data", "cache", "state")]
    written = [one for place in places for one in place.rglob("*") if not one.is_symlink()]
    assert any(one.name == "tokens.sqlite3" for one in written)
    assert [one for one in written if one.stat().st_mode & 0o077] == []


def test_ctrl_c_stops_the_daemon_and_its_child_and_the_log_says_so(somebody):
    child = engine_child(somebody)
    ending = os.pidfd_open(child)
    somebody.process.send_signal(signal.SIGINT)
    assert somebody.process.wait(SOON) == 0
    assert ended(ending)
    lines = [json.loads(line) for line in somebody.log_end().splitlines()]
    assert [line["event"] for line in lines if line["part"] == "lorekeep"][-2:] == ["stopping", "stopped"]


def ended(pidfd, timeout_s=SOON):
    try:
        return bool(select.select([pidfd], [], [], timeout_s)[0])
    finally:
        os.close(pidfd)
