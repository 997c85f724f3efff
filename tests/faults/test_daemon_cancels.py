"""A load is cancelled in each of its phases: the codex is what it was before, and the next load works."""

import json
import os
import pty
import select
import signal
import subprocess
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from private_daemon import LORE
from support.house import (
    CODES,
    ask,
    begun,
    codebase,
    counters,
    engine_child,
    hits,
    lent,
    living,
    over_socket,
    question,
    reply,
    shown,
    until,
)
from support.refusals import refusal

from orchestrator.cli.client import unix_connection

FILES = 200


@pytest.fixture(scope="module")
def running(shared_daemon):
    with lent(shared_daemon) as daemon:
        write_release(daemon, 1)
        load(daemon)
        yield daemon


@pytest.fixture
def house(running):
    """A daemon with one release of the codex `parts` in the tier `map`, which it does not follow; whatever came before."""
    if len(releases(running)) != 1 or unseen(running):
        load(running)
    return running


def unseen(house):
    """What a search may not see, beside that nobody follows the files."""
    return "; ".join(part for part in shown(house, "parts")["unseen"].split("; ") if "not followed" not in part)


def load(house):
    done = house.lore("load", house.folder / "parts", "--tier", "map", "--no-watch")
    assert done.returncode == 0, done.stderr


def write_release(house, number):
    """Every file says of which release it is, its outline too, and so does the vault's code: each load counts them all."""
    folder = codebase(house.folder / "parts", {"zebra": code(number)}, functions=1)
    for part in range(FILES):
        (folder / f"part{part:03}.py").write_text(f"def part{part:03}_of_{number}():\n    return 'release {number}'\n")


def code(release):
    return f"{release + 100}0042"


def stands(house):
    """The number of the release that can be found."""
    (number,) = releases(house)
    return number


def known(house):
    """All that a load may change of a codex."""
    codex = shown(house, "parts")
    kept = ("generation", "files", "tier", "reason", "fresh", "tokens", "tier_tokens", "indexed_chunks", "skipped")
    return {key: codex[key] for key in kept}


def releases(house):
    found = hits(house, "release", "parts", 100)
    lines = [line for hit in found for line in hit["snippet"].splitlines() if "release" in line]
    return {int(line.split("'")[1].removeprefix("release ")) for line in lines}


def answered(house):
    return ask(house, "zebra", codex="parts")["answer"].strip().rstrip(".")


def until_phase(loading, phase):
    for line in loading.stdout:
        if json.loads(line).get("phase") == phase:
            return
    pytest.fail(f"the load never told of {phase}: {loading.stderr.read()}")


def cancelled_in(house, phase, *arguments):
    """Cancels a load that has told of this phase, and waits for both. The engine stands still meanwhile: a load that needs
    it cannot end before it is cancelled. One that needed it no more ends, and False is given."""
    loading = begun(house, "load", house.folder / "parts", "--json", *arguments)
    until_phase(loading, phase)
    with closing(unix_connection(house.socket)) as cancelling:
        with standing_still(engine_child(house)):
            if held := needs_engine(shown(house, "parts").get("load")):
                cancelling.request("POST", "/v1/codices/parts/cancel")
                shown(house, "parts")  # it was asked later and is answered: the daemon has read both
        if held:
            assert cancelling.getresponse().status == 200
    if held:
        assert_cancelled(loading)
    else:
        _, words = loading.communicate(timeout=60)
        assert loading.returncode == 0, words
    return held


def assert_cancelled(loading):
    _, words = loading.communicate(timeout=60)
    assert loading.returncode == 1, words
    assert "the load was cancelled: parts is as it was before" in words


@contextmanager
def standing_still(process):
    os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(process, signal.SIGCONT)


def needs_engine(load):
    """Whether a load still has texts for the engine to count, or a prefix to compute; None is one that is over."""
    return load is not None and (load["phase"] not in ("outline", "prefill") or load["done"] < load["total"])


def cancelled_release(house, phase, *arguments):
    """Of a release whose load was cancelled in this phase: what stood before, and its number."""
    while True:
        before, stood = known(house), stands(house)
        write_release(house, stood + 1)
        if cancelled_in(house, phase, *arguments):
            return before, stood


def cancel(house, name):
    connection = unix_connection(house.socket)
    connection.request("POST", f"/v1/codices/{name}/cancel")
    try:
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("phase", "options"),
    [
        ("walk", ()),
        ("read", ()),
        ("index", ()),
        ("count", ()),
        ("outline", ("--watch",)),
        ("prefill", ("--tier", "full", "--wait", "--exclude", "part19*")),
    ],
)
def test_a_load_that_is_cancelled_leaves_what_stood_before_and_the_next_one_works(house, phase, options):
    before, stood = cancelled_release(house, phase, *options)

    assert answered(house) == code(stood)
    until(lambda: unseen(house) == "")
    assert known(house) == before
    assert stands(house) == stood
    assert "its load ended early: the load was cancelled" in shown(house, "parts")["fresh_notice"]

    loaded = house.json("load", house.folder / "parts", "--tier", "map", "--wait")
    assert loaded["codex"]["generation"] == before["generation"] + 1
    assert answered(house) == code(stood + 1)
    assert stands(house) == stood + 1
    after = shown(house, "parts")
    assert (after["fresh"], after["fresh_notice"][:12]) == ("not watched", "not followed")


def children(daemon):
    return [
        one
        for one in psutil.Process(daemon.process.pid).children()
        if "orchestrator.engine.child.worker" in one.cmdline()
    ]


def test_a_load_that_waits_for_the_model_can_be_cancelled(house):
    stood = stands(house)
    write_release(house, stood + 1)
    house.stop()
    house.process = house.launch((), {})
    until(lambda: children(house))
    child = engine_child(house)
    os.kill(child, signal.SIGSTOP)  # before it has loaded anything: as good as a model that takes minutes
    try:
        until(lambda: house.lore("status").returncode == 0)
        loading = begun(house, "load", house.folder / "parts", "--json", "--tier", "full")
        until_phase(loading, "model")
        assert cancel(house, "parts") == 200
        assert_cancelled(loading)
    finally:
        os.kill(child, signal.SIGCONT)
    until(lambda: house.lore("codex", "show", "parts").returncode == 0)
    until(lambda: unseen(house) == "")
    assert answered(house) == code(stood)
    assert shown(house, "parts")["reason"].startswith("map as forced")


def test_cancelled_loads_leave_no_file_and_no_thread_open(house):
    def held():
        here = Path(f"/proc/{house.process.pid}")
        return len([*(here / "fd").iterdir()]), len([*(here / "task").iterdir()])

    cancelled_release(house, "count")
    files, threads = held()
    for phase in ("walk", "index", "outline", "count", "prefill"):
        _, stood = cancelled_release(house, phase, *(("--tier", "full", "--wait") if phase == "prefill" else ()))
    until(lambda: held()[0] <= files + 1)
    assert held()[1] <= threads + 4, "workers of pools, which are kept"
    assert answered(house) == code(stood)


def test_what_was_cancelled_is_not_found_after_a_restart(house):
    before, stood = cancelled_release(house, "prefill", "--tier", "full", "--wait")
    house.kill()
    house.start()
    until(lambda: unseen(house) == "")
    assert known(house) == before
    assert answered(house) == code(stood)
    assert house.lore("load", house.folder / "parts").returncode == 0
    assert answered(house) == code(stood + 1)


def test_a_first_load_that_is_cancelled_leaves_nothing_that_could_be_asked(house):
    folder = codebase(house.folder / "first", functions=80)
    loading = begun(house, "load", folder, "--wait", "--no-watch", "--json")
    until_phase(loading, "prefill")
    # A command's process would come too late on a crowded machine.
    with over_socket(house) as http:
        refused = http.delete("/v1/codices/first")
    assert refused.status_code == 409
    assert "lore load --cancel first" in refused.json()["error"]["hint"]
    assert reply(house, "/v1/codices/first/cancel", {}) == {"cancelled": "first", "what": "load"}
    _, words = loading.communicate(timeout=60)
    assert (loading.returncode, "the load was cancelled: first is not loaded to the end" in words) == (1, True)
    assert "first" in refusal(house.lore("ask", "hello", "-c", "first"), 5)
    status = house.lore("status").stdout
    assert "not loaded to the end" in status
    assert "load again: it continues; or take it out: lore codex drop first" in status
    assert house.lore("load", folder, "--wait").returncode == 0
    assert ask(house, "zebra", codex="first")["answer"].strip().startswith(CODES["zebra"])
    assert house.lore("codex", "drop", "first").returncode == 0


def test_after_a_load_its_floor_can_be_stopped_and_a_question_computes_the_rest(house):
    for functions in (120, 240, 480, 960):  # until one is not computed before it is stopped
        folder = codebase(house.folder / "background", functions=functions)
        assert house.lore("load", folder, "--no-watch").returncode == 0
        stopped = house.lore("load", "--cancel", "background")
        if stopped.returncode == 0:
            break
    assert stopped.returncode == 0, stopped.stderr
    assert "no longer computed" in stopped.stderr
    assert shown(house, "background")["prefill"] is None
    assert "no load of 'background' is running" in refusal(house.lore("load", "--cancel", "background"), 5)
    assert ask(house, "zebra", codex="background")["answer"].strip().startswith(CODES["zebra"])
    assert house.lore("codex", "drop", "background").returncode == 0


def test_a_floor_that_was_stopped_is_not_computed_by_the_next_start_but_by_the_next_question(models):
    with living(models) as daemon:
        folder = codebase(daemon.folder / "background", functions=250)
        assert daemon.lore("load", folder, "--no-watch").returncode == 0
        assert reply(daemon, "/v1/codices/background/cancel", {}) == {"cancelled": "background", "what": "floor"}
        daemon.stop()
        daemon.start()
        until(lambda: shown(daemon, "background")["tier"])
        small = codebase(daemon.folder / "small", functions=1)
        assert daemon.lore("load", small, "--wait", "--no-watch").returncode == 0  # by then the other would be computed
        assert counters(daemon)["computed_tokens"] <= shown(daemon, "small")["floor_tokens"]
        assert shown(daemon, "background")["prefill"] is None
        waits, answer = streamed(daemon, question("zebra"), "background")
        assert answer.strip().startswith(CODES["zebra"])
        floors = {wait["total"] for wait in waits if wait["phase"] == "floor"}
        assert floors == {shown(daemon, "background")["floor_tokens"]}


def streamed(daemon, asked, codex):
    """What a streamed question waited for, and its answer."""
    body = {"model": "lore", "messages": [{"role": "user", "content": asked}], "stream": True, "lore": {"codex": codex}}
    with over_socket(daemon) as client:
        lines = client.post("/v1/chat/completions", json=body, timeout=60).text.splitlines()
    waits = [json.loads(line[1:])["progress"] for line in lines if line.startswith(": {")]
    chunks = [json.loads(line.removeprefix("data: ")) for line in lines if line.startswith("data: {")]
    return waits, "".join(chunk["choices"][0]["delta"].get("content") or "" for chunk in chunks if chunk.get("choices"))


def pressed_until_it_ends(command):
    """Ctrl-C, and again: one between a question's last letter and the wait for its answer goes unheard by Python."""
    while command.poll() is None:
        command.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            command.wait(10)


@pytest.mark.parametrize(("said", "stands"), [("y\n", False), ("n\n", True), ("\x03", True)])
def test_ctrl_c_on_a_terminal_asks_whether_the_load_is_to_be_stopped(house, said, stands):
    folder = codebase(house.folder / "asked", functions=150)
    ours, theirs = pty.openpty()
    command = [str(LORE), "load", str(folder), "--wait", "--no-watch"]
    loading = subprocess.Popen(command, env=house.environment, stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    shown_until(ours, "computing tokens")
    loading.send_signal(signal.SIGINT)
    shown_until(ours, "stop it now?")
    if said == "\x03":
        pressed_until_it_ends(loading)
    else:
        os.write(ours, said.encode())
    assert loading.wait(60) == 130
    os.close(ours)
    if stands:
        until(lambda: shown(house, "asked")["prefill"] is None)
    else:
        assert "not loaded to the end" in house.lore("status").stdout
    assert house.lore("codex", "drop", "asked").returncode == 0


def shown_until(terminal, words, timeout_s=60):
    seen = ""
    while words not in seen:
        assert select.select([terminal], [], [], timeout_s)[0], f"{words!r} never came: {seen}"
        seen += os.read(terminal, 4096).decode(errors="replace")
    return seen
