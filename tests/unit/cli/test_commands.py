"""Every command as a person or a script sees it: stdout, stderr, exit status."""

import json
import os
import pty
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from served import served

LORE = Path(sys.executable).parent / "lore"


def test_ask_prints_the_answer_alone_and_the_rest_to_stderr(lore, lorekeep):
    done = lore("ask", "hello there")
    assert (done.returncode, done.stdout) == (0, "hello there \n")
    assert "demo main@1a2b3c4 + 2 changed files · CAG (full) · 90 tokens cached, 10 computed" in done.stderr
    assert "session brave-otter" in done.stderr
    assert "cites src/a.py:10" in done.stderr
    assert "builtin:quoter, the built-in self-test model" in done.stderr
    assert "\x1b" not in done.stdout + done.stderr


def test_ask_as_json_is_one_object(lore, lorekeep):
    done = lore("ask", "hello", "--json")
    answer = json.loads(done.stdout)
    assert (answer["answer"], answer["finish_reason"], answer["lore"]["trace"]) == ("hello ", "stop", "t1")
    assert answer["usage"]["prompt_tokens_details"]["cached_tokens"] == 90
    assert done.stderr == ""


def test_ask_sends_what_was_typed(lore, lorekeep, tmp_path):
    file = tmp_path / "notes.txt"
    file.write_text("some notes")
    given = ["-c", "demo", "-s", "s1", "--identity", "i", "--strategy", "rag", "--max-tokens", "7", "--stop", "x"]
    done = lore(
        "ask", "q", *given, "-f", str(file), "--temperature", "0.5", "--timeout", "3", "--no-think", "--no-wait"
    )
    assert done.returncode == 0
    assert f"with {file}: 10 characters" in done.stderr
    (ask,) = lorekeep.service.asked
    assert (ask.codex, ask.session, ask.identity, ask.strategy) == ("demo", "s1", "i", "rag")
    assert (ask.max_tokens, ask.stop, ask.temperature, ask.timeout_s) == (7, ("x",), 0.5, 3.0)
    assert (ask.think, ask.wait, ask.private) == (False, False, False)
    assert [(given.name, given.text) for given in ask.attachments] == [(str(file), "some notes")]
    assert ask.client["cwd"] == str(Path.cwd())


def test_a_new_question_begins_a_session_a_private_one_none_and_continue_goes_on(lore, lorekeep):
    lore("ask", "a")
    lore("ask", "b", "--private")
    lore("ask", "c", "--continue")
    first, private, further = lorekeep.service.asked
    assert (first.session, first.continue_last) == ("", False)
    assert (private.session, private.private) == (None, True)
    assert (further.session, further.continue_last) == (None, True)


def test_a_pipe_is_the_question_or_stands_beside_it(lore, lorekeep):
    assert lore("ask", stdin="from the pipe").stdout == "from the pipe \n"
    assert lore("ask", "-", stdin="by dash").stdout == "by dash \n"
    beside = lore("ask", "why?", stdin="error 42")
    assert beside.stdout == "why? \n"
    assert "with standard input: 8 characters" in beside.stderr
    assert [given.text for given in lorekeep.service.asked[-1].attachments] == ["error 42"]


@pytest.mark.parametrize(
    ("arguments", "status", "words"),
    [
        (["ask", "huge"], 4, "90,000 tokens"),
        (["ask", "q", "-c", "dmo"], 5, "there are: demo"),
        (["ask", "paused"], 7, "lore resume"),
        (["ask", "loading"], 8, "loading"),
        (["ask", "bug"], 1, "mistake"),
        (["ask", "one break"], 1, "the engine died"),
        (["ask", "  "], 2, "empty"),
        (["ask"], 2, "empty"),
        (["ask", "q", "-f", "/no/such/file"], 2, "/no/such/file"),
        (["ask", "q", "-s", "a", "--continue"], 2, "exclude"),
        (["ask", "q", "--max-tokens", "0"], 2, "max-tokens"),
        (["ask", "q", "--no-such-option"], 2, "no-such-option"),
        (["no-such-command"], 2, "no-such-command"),
        (["load", "/missing"], 2, "no directory"),
        (["load", "/busy"], 1, "running"),
        (["search", "nothing"], 5, "nothing found"),
        (["codex", "show", "nope"], 5, "no codex nope"),
        (["codex", "drop", "nope"], 5, "no codex nope"),
        (["session", "show", "nope"], 5, "no session nope"),
        (["model", "show", "nope"], 5, "builtin:quoter"),
        (["load", "--cancel", "nope"], 5, "no codex nope"),
        (["plan", "huge"], 4, "8,000 fit"),
    ],
)
def test_what_goes_wrong_has_its_status_and_says_so_without_a_traceback(lore, lorekeep, arguments, status, words):
    done = lore(*arguments)
    assert done.returncode == status
    assert words in done.stderr or words == "mistake"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command", [["ask", "q"], ["load"], ["plan", "q"], ["search", "q"], ["status"], ["codex", "list"]]
)
def test_without_a_daemon_every_command_ends_with_3_and_the_line_that_starts_one(lore, folder, command):
    done = lore(*command)
    assert done.returncode == 3
    assert str(folder / "lore.sock") in done.stderr
    assert "lore serve" in done.stderr


def test_the_option_goes_before_the_variable(lore, lorekeep, folder):
    assert lore("status", LORE_SOCKET="/nowhere").returncode == 3
    assert lore("status", "--socket", str(folder / "lore.sock"), LORE_SOCKET="/nowhere").returncode == 0


@pytest.mark.skipif(os.getuid() == 0, reason="root may use every socket")
def test_a_socket_that_is_somebody_else_s_ends_with_6(lore, lorekeep):
    lorekeep.socket.chmod(0)
    assert lore("status").returncode == 6


def test_a_stranger_is_told_that_nothing_is_permitted(lore, folder):
    with served(folder, owner=os.getuid() + 1):
        assert lore("status").returncode == 6


def test_client_and_daemon_of_different_versions_say_so(lore, folder):
    with served(folder, version="9.9.9"):
        done = lore("status", "--json")
    assert "9.9.9" in done.stderr
    assert json.loads(done.stdout)["version"] == "9.9.9"


def test_an_answer_that_breaks_off_is_a_failure_not_an_answer(lore, folder):
    import socket
    import threading

    def half(server):
        connection, _ = server.accept()
        received = b""
        while b"messages" not in received:
            received += connection.recv(65536)
        connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        connection.sendall(b'2e\r\ndata: {"choices":[{"delta":{"content":"ha"}}]}\n\n\r\n')
        connection.close()

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(folder / "lore.sock"))
        server.listen()
        thread = threading.Thread(target=half, args=(server,))
        thread.start()
        done = lore("ask", "q")
        thread.join()
    assert done.returncode == 1
    assert "broke off" in done.stderr


def test_load_prints_its_summary_and_as_json_every_event(lore, lorekeep, tmp_path):
    done = lore("load", str(tmp_path), "--name", "mine")
    assert done.returncode == 0
    assert "mine: 3 files of" in done.stdout
    assert "1 file or folder: 1 binary" in done.stdout
    assert "full 1,200, skeleton 300, map 90" in done.stdout
    assert "full: 1,200 tokens fit" in done.stdout
    events = [json.loads(line) for line in lore("load", str(tmp_path), "--json").stdout.splitlines()]
    assert [event["event"] for event in events] == ["progress", "loaded"]
    assert events[0]["eta_s"] == 1.0


def test_load_sends_an_absolute_path_and_its_options(lore, lorekeep):
    lore("load", "--no-watch", "--include", "*.py", "--exclude", "x", "--exclude", "y", "--tier", "map", "--wait")
    (request,) = lorekeep.service.loads
    assert request.path == str(Path.cwd())
    assert (request.watch, request.include, request.exclude) == (False, ("*.py",), ("x", "y"))
    assert (request.tier, request.wait, request.dry_run) == ("map", True, False)


def started(folder, *arguments):
    environment = {**os.environ, "LORE_SOCKET": str(folder / "lore.sock")}
    return subprocess.Popen(
        [LORE, *arguments], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize(
    ("command", "words"), [(["ask", "forever"], b""), (["load", "/forever", "--json"], b"the daemon goes on loading")]
)
def test_ctrl_c_ends_with_130(lorekeep, folder, command, words):
    process = started(folder, *command)
    lorekeep.wait_for(lorekeep.service.begun)
    process.stdout.read(6)  # the command is where it waits for more
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=10)
    assert process.returncode == 130
    assert words in told
    assert b"Traceback" not in told
    if command[0] == "ask":
        lorekeep.wait_for(lorekeep.service.ended)


def test_plan_shows_the_decision_the_six_blocks_and_the_numbers(lore, lorekeep):
    page = lore("plan", "how?").stdout
    for words in (
        "CAG: tier full",
        "1,200 tokens fit in 8,192",
        "identity",
        "query",
        "90 cached",
        "first token in 40 ms",
    ):
        assert words in page
    plan = json.loads(lore("plan", "how?", "--json").stdout)
    assert [block["from"] for block in plan["blocks"]] == ["ram"] * 6
    assert lore("plan", "how?", "--prompt").stdout == "<the exact prompt>"


def test_search_piped_prints_path_line_text(lore, lorekeep):
    assert lore("search", "run").stdout == "src/a.py:11:def run():\n"
    assert json.loads(lore("search", "run", "--json").stdout)["hits"][0]["symbol"] == "run"
    nothing = lore("search", "nothing", "--json")
    assert (nothing.returncode, json.loads(nothing.stdout)["hits"]) == (5, [])


def test_search_says_what_it_may_not_have_seen(lore, lorekeep):
    assert json.loads(lore("search", "nothing", "--json").stdout)["notices"] == ["demo is being indexed"]
    assert "demo is being indexed" in lore("search", "nothing").stderr


def test_what_is_loaded_is_listed_shown_reloaded_and_dropped(lore, lorekeep):
    assert "/src/demo" in lore("codex", "list").stdout
    shown = lore("codex", "show", "demo").stdout
    assert "tier      full: 1,200 tokens fit" in shown
    assert "taken in  generation 1" in shown
    assert lore("codex", "reload", "demo").returncode == 0
    assert lore("codex", "drop", "demo").returncode == 0
    assert json.loads(lore("codex", "list", "--json").stdout) == {"codices": []}


def test_conversations_are_listed_shown_exported_renamed_and_dropped(lore, lorekeep):
    lore("ask", "hello", "-s", "one")
    assert "one" in lore("session", "list").stdout
    assert lore("session", "rename", "one", "two").returncode == 0
    assert lore("session", "show", "two").stdout == "user: hello\n"
    assert "## user\n\nhello" in lore("session", "export", "two").stdout
    assert lore("session", "drop", "two").returncode == 0
    assert json.loads(lore("session", "list", "--json").stdout) == {"sessions": []}


def test_status_and_models_have_a_page_and_an_object(lore, lorekeep):
    page = lore("status").stdout
    assert "memory     calm, 25 % of what may be used" in page
    assert "lorekeep/demo  1,024   600        63        300      61  4.0 KiB" in page
    assert "formatter  formatter 'odd' of some-package: it is broken" in page
    keys = {"version", "model", "engine", "governor", "codices", "sessions", "queue"}
    assert keys <= set(json.loads(lore("status", "--json").stdout))
    assert "loaded" in lore("model", "list").stdout
    assert "yes, context 8.2k" in lore("model", "list").stdout
    assert json.loads(lore("model", "show", "builtin:quoter", "--json").stdout)["model"]["fits"] is True
    assert "fits       yes, context 8.2k" in lore("model", "show", "builtin:quoter").stdout


def test_the_caches_have_a_page_and_an_object(lore, lorekeep):
    page = lore("stats", "cache").stdout
    assert "900 of 1,000 prompt tokens cached, about 2 s saved (at 2.00 ms a token)" in page
    assert "disk checkpoints 300 30 % 2.0 KiB" in " ".join(page.split())
    assert "30 of 40 tokens accepted (75 %)" in page
    assert json.loads(lore("stats", "cache", "--json").stdout)["tiers"]["vram"]["tokens"] == 500


def on_a_terminal(folder, *arguments, **environment):
    """Everything that `lore` writes to a terminal, and its exit status."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [LORE, *arguments],
        env={**os.environ, "LORE_SOCKET": str(folder / "lore.sock"), "TERM": "xterm", **environment},
        stdin=subprocess.DEVNULL,
        stdout=theirs,
        stderr=theirs,
    )
    os.close(theirs)
    written = b""
    try:
        while chunk := os.read(ours, 65536):
            written += chunk
    except OSError:
        pass  # how a terminal tells that the other side is closed
    os.close(ours)
    return written.decode(), process.wait(10)


def test_on_a_terminal_waiting_is_shown_and_colour_unless_it_is_not_wanted(lorekeep, folder):
    shown, status = on_a_terminal(folder, "ask", "hello")
    assert status == 0
    assert "waiting for floor 512/1,024" in shown
    assert "\x1b[2m" in shown
    assert "\x1b[2m" not in on_a_terminal(folder, "ask", "hello", NO_COLOR="1")[0]


def test_an_answer_cannot_drive_the_terminal(lorekeep, folder):
    shown, _ = on_a_terminal(folder, "ask", "evil\x1b]0;title\x07", NO_COLOR="1")
    assert "\x1b]0;" not in shown
    assert "evil" in shown


def test_a_reader_that_has_enough_ends_the_command_quietly(lorekeep, folder):
    process = started(folder, "ask", "word " * 5000)
    process.stdout.read(1)
    process.stdout.close()
    told = process.stderr.read()
    assert process.wait(10) in (0, 141)
    assert b"Traceback" not in told
    process.stderr.close()


def test_version_and_help_need_no_daemon(lore):
    assert lore("--version").stdout.startswith("lore ")
    assert "ask" in lore("--help").stdout


def test_help_loads_neither_rich_nor_pydantic_nor_an_http_package():
    script = "import sys\nfrom orchestrator.cli import app\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout.split()
    assert {"rich", "pydantic", "httpx2", "http.client", "asyncio", "starlette"} & set(loaded) == set()


def test_a_question_that_is_not_utf8_is_refused_in_words(folder, lorekeep):
    done = subprocess.run([LORE, "ask", b"caf\xe9", "--socket", lorekeep.socket], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"not UTF-8" in done.stderr


def test_a_mistake_of_ours_is_one_line(lore, folder):
    (folder / "lorekeep").mkdir()
    script = "import sys\nsys.argv = ['lore', 'status']\nfrom orchestrator.cli import main, status\n"
    script += "from orchestrator.cli import connect\nconnect.daemon = None\nstatus.daemon = None\nmain()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[0].startswith("lore: a mistake in lore itself: TypeError")
    assert "Traceback" not in done.stderr


@pytest.fixture
def configured(folder):
    def write(text):
        (folder / "lorekeep").mkdir(exist_ok=True)
        (folder / "lorekeep" / "config.toml").write_text(text)
        return {"XDG_CONFIG_HOME": str(folder), "LORE_SOCKET": ""}

    return write


def test_config_shows_values_and_origins_and_refuses_typos_with_2(lore, configured, folder):
    good = configured("[model]\nthreads = 3")
    rows = {row["key"]: row for row in json.loads(lore("config", "show", "--json", **good).stdout)["settings"]}
    assert (rows["model.threads"]["value"], rows["model.threads"]["default"]) == (3, 0)
    assert rows["model.threads"]["origin"] == str(folder / "lorekeep/config.toml")
    assert "model.threads" in lore("config", "show", **good).stdout
    assert lore("config", "check", **good).returncode == 0
    assert str(folder / "lorekeep/config.toml") in lore("config", "path", **good).stdout
    bad = configured("[model]\nthread = 3")
    for command in (["config", "check"], ["config", "show"], ["serve"]):
        done = lore(*command, **bad)
        assert done.returncode == 2
        assert "unknown setting model.thread" in done.stderr
        assert "model.threads" in done.stderr


def test_doctor_says_what_it_found_and_what_mends_it(lore, configured, folder):
    environment = {**configured('[model]\npath = "/no/such.gguf"'), "XDG_CACHE_HOME": str(folder)}
    (folder / "lorekeep").chmod(0o755)
    done = lore("doctor", "--json", **environment)
    report = json.loads(done.stdout)
    checks = {check["name"]: check for check in report["checks"]}
    assert (done.returncode, report["ok"]) == (1, False)
    assert (checks["model"]["ok"], checks["folders"]["ok"], checks["settings"]["ok"]) == (False, False, True)
    assert checks["folders"]["fix"] == f"chmod 700 {folder / 'lorekeep'}"
    assert "fix: " in lore("doctor", **environment).stdout


def test_a_token_is_shown_once_with_what_to_configure(lore):
    import hashlib

    made = json.loads(lore("token", "new", "--sigil", "owner", "--json").stdout)
    assert made["sha256"] == hashlib.sha256(made["token"].encode()).hexdigest()
    plain = lore("token", "new", "--sigil", "owner")
    assert plain.stdout.strip() not in plain.stderr
    assert "[tokens.client]" in plain.stderr


def test_a_working_directory_that_is_gone_is_said_so(lorekeep, folder):
    (folder / "gone").mkdir()
    script = "cd gone && rmdir ../gone && exec $LORE load ."
    environment = {**os.environ, "LORE": str(LORE), "LORE_SOCKET": str(folder / "lore.sock")}
    done = subprocess.run(
        ["sh", "-c", script], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, "is gone" in done.stderr) == (2, True)


def test_who_reads_the_output_may_leave(folder):
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([LORE, "config", "show"], stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writing)
    assert (done.returncode, done.stderr) == (141, "")


def test_a_token_for_a_sigil_that_does_not_exist_is_not_handed_out(lore, tmp_path):
    done = lore("token", "new", "--sigil", "nosuch", LORE_CONFIG="", XDG_CONFIG_HOME=str(tmp_path))
    assert (done.returncode, done.stdout) == (2, "")
    assert 'no sigil "nosuch"; there is only owner' in done.stderr


@pytest.mark.parametrize("action", ["install", "status", "uninstall"])
def test_a_service_that_systemd_was_not_told_of_is_no_success(lore, tmp_path, action):
    done = lore("service", action, HOME=str(tmp_path), XDG_CONFIG_HOME=str(tmp_path), PATH=str(tmp_path))
    assert done.returncode == 1
    assert "systemctl" in done.stderr or "systemd" in done.stderr
    assert "linger" not in done.stderr
