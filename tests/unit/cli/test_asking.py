"""`lore ask`: what is sent, what is printed where, and how an answer may break off."""

import json
import subprocess
import sys
from pathlib import Path

LORE = Path(sys.executable).parent / "lore"


def test_ask_prints_the_answer_alone_and_the_rest_to_stderr(lore, lorekeep):
    done = lore("ask", "hello there")
    assert (done.returncode, done.stdout) == (0, "hello there \n")
    assert "demo main@1a2b3c4 + 2 changed files · CAG (full) · 90 tokens cached, 10 computed" in done.stderr
    assert "go on: -s brave-otter\n" in done.stderr
    assert "cites src/a.py:10" in done.stderr
    assert "builtin:quoter only quotes" in done.stderr
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
    assert (ask.max_tokens, ask.stop, ask.sampling.temperature, ask.timeout_s) == (7, ("x",), 0.5, 3.0)
    assert (ask.think, ask.wait, ask.private) == (False, False, False)
    assert [(given.name, given.text) for given in ask.attachments] == [(str(file), "some notes")]
    assert ask.client["cwd"] == str(Path.cwd())


def test_a_new_question_begins_a_session_a_private_one_none_and_continue_goes_on(lore, lorekeep):
    lore("ask", "a")
    lore("ask", "b", "--private")
    lore("ask", "c", "--continue")
    lore("ask", "d", "--private", "-s", "kept")
    first, private, further, aside = lorekeep.service.asked
    assert (aside.session, aside.private) == ("kept", True)
    assert (first.session, first.continue_last) == ("", False)
    assert (private.session, private.private) == (None, True)
    assert (further.session, further.continue_last) == (None, True)


def test_texts_that_a_session_keeps_to_the_letter_are_sent_as_they_were_typed(lore, lorekeep):
    kept = ["Answer in German.", "  two  blanks, and a line\nbreak "]
    done = lore("ask", "a", "-s", "talk", *(part for text in kept for part in ("--verbatim", text)))
    assert (done.returncode, lorekeep.service.asked[-1].verbatim) == (0, tuple(kept))
    assert lore("ask", "b", "-s", "talk").returncode == 0
    assert lorekeep.service.asked[-1].verbatim == ()


def test_the_footer_names_a_session_that_was_named_or_is_new_and_what_it_may_have_been_meant_for(lore, lorekeep):
    assert lore("ask", "a", "-s", "fresh").stderr.splitlines()[0].endswith(" · new session fresh")
    assert lore("ask", "b", "-s", "refresh").stderr.splitlines()[0].endswith(" · session refresh")
    assert "session" not in lore("ask", "c").stderr
    assert "the session fresh is new; did you mean refresh?\n" in lore("ask", "d", "-s", "fresh").stderr


def test_a_pipe_is_the_question_or_stands_beside_it(lore, lorekeep):
    assert lore("ask", stdin="from the pipe").stdout == "from the pipe \n"
    assert lore("ask", "-", stdin="by dash").stdout == "by dash \n"
    beside = lore("ask", "why?", stdin="error 42")
    assert beside.stdout == "why? \n"
    assert "with standard input: 8 characters" in beside.stderr
    assert [given.text for given in lorekeep.service.asked[-1].attachments] == ["error 42"]


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


def test_a_question_that_is_not_utf8_is_refused_in_words(folder, lorekeep):
    done = subprocess.run([LORE, "ask", b"caf\xe9", "--socket", lorekeep.socket], capture_output=True, check=False)
    assert done.returncode == 2
    assert b"not UTF-8" in done.stderr
