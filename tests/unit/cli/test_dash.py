"""What the page of `lore dash` may ask for, and what it is told where there is nothing to tell."""

import asyncio
import json
import re
import signal
import socket
import subprocess
from urllib.parse import urlsplit

import pytest
from private_daemon import LORE, end_with_parent

from orchestrator.cli.dash_site import Site
from orchestrator.cli.loopback import MOST_KNOWN, PageRequest, Stream
from orchestrator.wire.places import VERSION


def told(folder, *parts, **query):
    """Status, value and headers."""
    answer = asyncio.run(Site(str(folder / "lore.sock")).answer(PageRequest(parts, query)))
    value = json.loads(answer.body) if answer.kind == "application/json" else answer.body.decode()
    return answer.status, value, answer.headers


def first_shot(folder):
    async def first():
        stream = await Site(str(folder / "lore.sock")).answer(PageRequest(("live",), {}))
        assert isinstance(stream, Stream)
        chunk = await anext(stream.chunks)
        await stream.chunks.aclose()
        return json.loads(chunk.removeprefix(b"data: "))

    return asyncio.run(first())


def test_each_page_has_one_script_and_one_style_with_a_nonce_of_its_own(folder):
    nonces = []
    for _ in range(2):
        _, text, headers = told(folder, "")
        (nonce,) = set(re.findall(r'nonce="([^"]+)"', text))
        assert text.count(f'nonce="{nonce}"') == text.count("<script") + text.count("<style") == 2
        assert f"script-src 'nonce-{nonce}'; style-src 'nonce-{nonce}'" in headers["Content-Security-Policy"]
        nonces.append(nonce)
    assert nonces[0] != nonces[1]


def test_the_page_has_neither_foreign_addresses_nor_a_way_to_write_html(folder):
    _, text, _ = told(folder, "")
    assert set(re.findall(r"https?://[^\s\"'`]+", text)) == {"http://www.w3.org/2000/svg"}  # a name, never fetched
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(|srcdoc|DOMParser", text)


def test_turns_and_memories_come_as_the_daemon_has_them(lorekeep, folder):
    assert told(folder, "traces", n="5")[:2] == (200, {"traces": []})
    assert told(folder, "memories")[0] == 200
    assert told(folder, "traces", n="0")[0] == 400
    assert told(folder, "traces", "zzz")[0] == 404
    shot = first_shot(folder)
    assert (shot["lore"], shot["picture"]["version"]) == (VERSION, VERSION)


@pytest.mark.parametrize("name", ["..", ".", "", "%2e%2e", "..%2f..%2fmetrics", "a%2fb"])
def test_no_name_leads_to_another_route_of_the_daemon(lorekeep, folder, name):
    for kind in ("traces", "memories", "files"):
        assert told(folder, kind, name)[0] == 404
    for parts in (("..", "v1", "status"), ("v1", "status"), ("traces", "a", "feedback"), ("live", "")):
        assert told(folder, *parts)[0] == 404


def test_without_a_daemon_it_is_said_what_starts_one(folder):
    status, value, _ = told(folder, "traces")
    assert (status, value["error"]["hint"]) == (503, "start one: lore serve")
    shot = first_shot(folder)
    assert "no daemon listens" in shot["away"]
    assert shot["hint"] == "start one: lore serve"


def test_a_daemon_that_hangs_is_told_soon_for_as_many_pages_as_are_answered(folder, monkeypatch):
    """One that takes connections and says nothing, as where its loop stands still."""
    monkeypatch.setattr("orchestrator.cli.dash_site.HANGS_S", 0.2)
    monkeypatch.setattr("orchestrator.cli.top_feed.HANGS_S", 0.2)
    with socket.socket(socket.AF_UNIX) as hangs:
        hangs.bind(str(folder / "lore.sock"))
        hangs.listen(200)

        async def all_at_once():
            site = Site(str(folder / "lore.sock"))
            return await asyncio.gather(*(site.answer(PageRequest(("traces",), {})) for _ in range(MOST_KNOWN)))

        answers = asyncio.run(all_at_once())
        shot = first_shot(folder)
    assert {one.status for one in answers} == {503}
    assert json.loads(answers[0].body)["error"]["message"] == "the daemon has not answered for 0 s"
    assert shot["away"] == "the daemon has not answered for 0 s"


def test_nothing_that_was_asked_is_written_down_whatever_is_wrong_with_it(lorekeep, environment, folder):
    with (folder / "told").open("w+") as told_to:
        command = [str(LORE), "dash"]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=told_to)
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().decode().strip())
        token = address.query.removeprefix("token=")
        for target in (f"/{token}", f"/?{token}", f"/traces/{token}?token={token}", f"/{token} x"):
            with socket.create_connection((address.hostname, address.port)) as page:
                page.sendall(f"GET {target} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
                page.settimeout(60)
                assert page.recv(100).startswith(b"HTTP/1.1 40")
        process.send_signal(signal.SIGINT)
        process.wait(60)
        process.stdout.close()
    assert (folder / "told").read_text() == "Ctrl-C ends it; who has this address sees what you may see\n"


def test_a_port_that_is_taken_is_named_with_what_to_do(lore):
    import socket

    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = lore("dash", "--port", str(taken.getsockname()[1]))
    assert (done.returncode, done.stdout) == (1, "")
    assert "--port names another" in done.stderr


def test_ctrl_c_tells_nothing_of_the_pages_that_are_open(lorekeep, environment, folder):
    with (
        (folder / "told").open("w+") as told_to,
        subprocess.Popen(
            [str(LORE), "dash"], env=environment, stdout=subprocess.PIPE, stderr=told_to, preexec_fn=end_with_parent
        ) as process,
    ):
        assert process.stdout is not None
        address = urlsplit(process.stdout.readline().decode().strip())
        with socket.create_connection((address.hostname, address.port)) as page:
            page.settimeout(60)
            page.sendall(f"GET /live?{address.query} HTTP/1.1\r\nHost: {address.netloc}\r\n\r\n".encode())
            assert page.recv(100).startswith(b"HTTP/1.1 200")
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
    assert (folder / "told").read_text() == "Ctrl-C ends it; who has this address sees what you may see\n"
