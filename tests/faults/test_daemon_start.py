"""What can be wrong when a daemon starts, and when none runs: each with its message and its exit status."""

import json
import os
import select
import signal
import socket
import subprocess

import pytest
from private_daemon import LORE
from support.house import codebase, engine_child, living, question, reply
from support.refusals import refusal
from support.waiting import SOON


@pytest.fixture
def nobody(new_daemon):
    """A daemon that is not started."""
    return new_daemon()


def serve(daemon, *options):
    """`lore serve` run to its end: what keeps it from starting."""
    return subprocess.run(
        [str(LORE), "serve", "--socket", str(daemon.socket), *map(str, options)],
        env=daemon.environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


# -- the model


def test_without_a_model_it_starts_on_the_built_in_one_and_says_so_wherever_an_answer_appears(models):
    with living(models) as daemon:
        assert reply(daemon, "/v1/status")["model"]["name"] == "builtin:quoter"
        assert "no model is configured" in reply(daemon, "/v1/status")["model"]["notice"]
        assert "no model is configured" in daemon.lore("ask", question("zebra"), "--max-tokens", "4").stderr
        assert "no model is configured" in daemon.json("ask", "hello there", "--max-tokens", "4")["lore"]["notice"]


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


@pytest.mark.parametrize("share", [0.0, 0.001, 0.5, 0.99])
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


def test_the_socket_of_a_dead_daemon_is_no_daemon_for_a_command_and_no_hindrance_for_the_next_one(nobody):
    nobody.socket.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(nobody.socket))
    assert nobody.socket.exists()
    assert "lore serve" in refusal(nobody.lore("status"), 3)
    nobody.start()
    assert nobody.lore("status").returncode == 0


def test_a_killed_daemon_leaves_its_socket_and_no_child_behind_and_the_next_one_starts(nobody):
    nobody.start()
    child = engine_child(nobody)
    ending = os.pidfd_open(child)
    nobody.kill()
    assert nobody.socket.exists()
    refusal(nobody.lore("status"), 3)
    assert ended(ending), "the engine's child ends by itself"
    nobody.start()
    assert nobody.lore("status").returncode == 0


def test_a_second_daemon_on_the_same_socket_is_refused_and_the_first_goes_on(nobody):
    nobody.start()
    words = refusal(serve(nobody), 1)
    assert str(nobody.socket) in words
    assert nobody.lore("status").returncode == 0


def test_a_second_daemon_on_the_same_folders_is_refused_whatever_its_socket_and_the_first_goes_on(nobody):
    nobody.start()
    place = nobody.folder / "run" / "other.sock"
    words = refusal(serve(nobody, "--socket", place), 1)
    assert f"a daemon (pid {nobody.process.pid}) already uses {nobody.folder / 'data' / 'lorekeep'}" in words
    assert f"--socket {nobody.socket}" in words
    assert not place.exists()
    found = {one["name"]: one for one in nobody_listens(nobody, place)["checks"]}
    assert f"pid {nobody.process.pid}" in found["daemon"]["detail"]
    assert str(nobody.socket) in found["daemon"]["fix"]
    assert "may be using it" in refusal(nobody.lore("model", "drop", "any", "--yes", "--socket", place), 1)
    assert nobody.lore("status").returncode == 0
    nobody.kill()
    nobody.start("--socket", str(place))
    assert nobody.lore("status", "--socket", place).returncode == 0


def nobody_listens(daemon, place):
    """The doctor's words on a socket that nobody serves."""
    return json.loads(daemon.lore("doctor", "--json", "--socket", place).stdout)


def test_the_socket_is_its_owner_s_alone_and_gone_after_a_clean_stop(nobody):
    nobody.start()
    assert nobody.socket.stat().st_mode & 0o777 == 0o600
    assert nobody.stop() == 0
    assert not nobody.socket.exists()


def test_what_the_daemon_writes_is_its_owner_s_alone(nobody):
    nobody.start()
    assert nobody.lore("load", codebase(nobody.folder / "vaults"), "--wait").returncode == 0
    assert nobody.stop() == 0
    places = [nobody.folder / name / "lorekeep" for name in ("data", "cache", "state")]
    written = [one for place in places for one in place.rglob("*") if not one.is_symlink()]
    assert any(one.name == "tokens.sqlite3" for one in written)
    assert [one for one in written if one.stat().st_mode & 0o077] == []


def test_ctrl_c_stops_the_daemon_and_its_child(nobody):
    nobody.start()
    child = engine_child(nobody)
    ending = os.pidfd_open(child)
    nobody.process.send_signal(signal.SIGINT)
    assert nobody.process.wait(SOON) == 0
    assert ended(ending)
    nobody.process = None


def ended(pidfd, timeout_s=SOON):
    try:
        return bool(select.select([pidfd], [], [], timeout_s)[0])
    finally:
        os.close(pidfd)
