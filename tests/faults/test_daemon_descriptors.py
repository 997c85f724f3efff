"""A daemon that may have 64 files open: with one codex it is as others are, and what it cannot open it says in words."""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO

import pytest
from private_daemon import PrivateDaemon
from support.house import CODES, ONE_THREAD, ask, codebase, over_socket, question

MOST = 64
LIMITED = ("sh", "-c", f'ulimit -n {MOST}; exec "$@"', "sh")


class FewDescriptors(PrivateDaemon):
    """A real start: it raises its own limit as far as it may."""

    def begin(self, command: Sequence[str], environment: Mapping[str, str], sink: IO[bytes]):
        return super().begin([*LIMITED, *command], environment, sink)


@pytest.fixture(scope="module")
def house(models, tmp_path_factory):
    context = {"LORE_MODEL__CONTEXT": "8192"}
    daemon = FewDescriptors(tmp_path_factory.mktemp("few"), models=models, environment={**ONE_THREAD, **context})
    daemon.start()
    assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait").returncode == 0
    yield daemon
    daemon.stop()


def test_the_log_says_that_the_limit_is_low(house):
    assert f"only {MOST} files may be open at a time" in house.log.read_text()


def test_a_codex_is_loaded_asked_and_searched(house):
    assert ask(house, "zebra")["answer"].strip().startswith(CODES["zebra"])
    assert "zebra.py" in house.lore("search", "zebra", "-c", "vaults").stdout


def test_a_crowd_is_answered_right_or_told_of_the_limit_and_leaves_no_trace(house):
    body = {"model": "lore/vaults", "messages": [{"role": "user", "content": question("walrus")}], "max_tokens": 10}

    def asked(_: int) -> str:
        with over_socket(house) as http:
            answer = http.post("/v1/chat/completions", json={**body, "temperature": 0, "lore": {"record": False}})
        if answer.is_success:
            return answer.json()["choices"][0]["message"]["content"].strip()[:7]
        return answer.json()["error"]["message"]

    with ThreadPoolExecutor(MOST) as pool:
        said = list(pool.map(asked, range(2 * MOST)))
    assert [one for one in said if one != CODES["walrus"] and "Too many open files" not in one] == []
    assert "Traceback" not in house.log.read_text()
    assert ask(house, "zebra")["answer"].strip().startswith(CODES["zebra"])


def test_a_codex_too_many_is_refused_with_what_to_raise_and_the_others_stay(house):
    for number in range(6):
        done = house.lore("load", codebase(house.folder / f"more{number}"))
        if done.returncode:
            break
    assert done.returncode == 1
    assert "Too many open files" in done.stderr and "ulimit -n" in done.stderr
    assert "Traceback" not in house.log.read_text()
    assert ask(house, "zebra", codex="vaults")["answer"].strip().startswith(CODES["zebra"])
