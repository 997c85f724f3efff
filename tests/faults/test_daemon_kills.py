"""The daemon is killed while it loads or makes a new generation: what it then knows is the old state or the new one."""

import json
import shutil
import sqlite3

import pytest
from support.house import ask, begun, codebase, hits, lent, question, revived, shown, until, write_vault

from orchestrator.cli.client import unix_connection

FILES = 110


@pytest.fixture(scope="module")
def running(shared_daemon):
    with lent(shared_daemon) as daemon:
        write_release(daemon, 1)
        assert load(daemon, "--tier", "map", "--no-watch").returncode == 0
        yield daemon


@pytest.fixture
def house(running):
    """A daemon with one release of the codex `parts` in the tier `map`, which it does not follow; whatever came before."""
    revived(running)
    if len(releases(running)) != 1 or unseen(running):
        assert load(running, "--tier", "map", "--no-watch").returncode == 0
    return running


def unseen(house):
    """What a search may not see, beside that nobody follows the files."""
    return "; ".join(part for part in shown(house, "parts")["unseen"].split("; ") if "not followed" not in part)


def write_release(house, number):
    """Every file says of which release it is, and so does the vault's code."""
    folder = codebase(house.folder / "parts", {"zebra": code(number)}, functions=1)
    for part in range(FILES):
        (folder / f"part{part:03}.py").write_text(f"def part{part:03}():\n    return 'release {number}'\n")


def code(release):
    return f"{release + 100}0042"


def post(house, route, body=None):
    """One request without a process of its own: a load would be over before that has started."""
    connection = unix_connection(house.socket)
    connection.request("POST", route, json.dumps(body or {}), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    try:
        return answer.status, json.loads(answer.read())
    finally:
        connection.close()


def load(house, *options):
    return house.lore("load", house.folder / "parts", *options)


def releases(house):
    """Those of which the archive's passages are."""
    found = [*hits(house, "release", "parts", 100), *hits(house, f"part{FILES - 1}", "parts", 1)]
    assert len(found) == 101
    lines = [line for hit in found for line in hit["snippet"].splitlines() if "release" in line]
    return {int(line.split("'")[1].removeprefix("release ")) for line in lines}


def stands(house):
    """The number of the release that can be found."""
    (number,) = releases(house)
    return number


def answered(house):
    return ask(house, "zebra", codex="parts")["answer"].strip().rstrip(".")


def killed_in(house, phase, *arguments):
    """Kills the daemon as soon as the load tells that it is in this phase; whether it had ended before the kill came."""
    loading = begun(house, "load", house.folder / "parts", "--json", *arguments)
    for line in loading.stdout:
        if json.loads(line).get("phase") == phase:
            break
    else:
        pytest.fail(f"the load never told of {phase}: {loading.stderr.read()}")
    house.kill()
    loading.communicate(timeout=120)
    assert loading.returncode != 130
    return loading.returncode == 0


@pytest.mark.parametrize("phase", ["walk", "read", "index", "count", "outline"])
def test_a_kill_during_a_load_leaves_the_old_state_or_the_new_one(house, phase):
    before, old = shown(house, "parts")["generation"], stands(house)
    write_release(house, old + 1)
    had_ended = killed_in(house, phase)

    house.start()
    until(lambda: unseen(house) == "")
    codex = shown(house, "parts")
    assert stands(house) == old + (codex["generation"] > before)
    assert codex["generation"] > before or not had_ended
    assert answered(house) == code(stands(house))
    assert codex["fresh"] == "not watched", "what the load asked for outlasts the kill"
    assert codex["reason"].startswith("map as forced")

    assert load(house).returncode == 0
    assert stands(house) == old + 1
    assert answered(house) == code(old + 1)
    until(lambda: remains(house) == [])  # a checkpoint may be written just now


def test_a_second_load_is_refused_and_one_that_is_cancelled_leaves_what_stood_before(house):
    before, stood = shown(house, "parts")["generation"], stands(house)
    write_release(house, stood + 1)
    more = house.folder / "parts" / "more"
    more.mkdir()
    for number in range(1000):  # a second of indexing, whatever the machine
        (more / f"more{number}.py").write_text(f"def more{number}():\n    return {number}\n" * 3)
    loading = begun(house, "load", house.folder / "parts", "--json")
    for line in loading.stdout:
        if json.loads(line).get("phase") == "index":
            break
    status, told = post(house, "/v1/codices", {"path": str(house.folder / "parts")})
    assert (status, told["error"]["message"]) == (409, "a load of 'parts' is running")
    assert "lore load --cancel parts" in told["error"]["hint"]
    _, found = post(house, "/v1/search", {"query": "release", "codex": "parts"})
    assert any("parts is being loaded (indexing files, " in notice for notice in found["notices"])
    assert post(house, "/v1/codices/parts/cancel")[0] == 200
    _, words = loading.communicate(timeout=60)
    assert loading.returncode == 1
    assert "cancelled" in words
    until(lambda: unseen(house) == "")
    codex = shown(house, "parts")
    assert codex["generation"] == before
    assert "its load ended early: the load was cancelled" in codex["fresh_notice"]
    assert "its load ended early" in house.lore("status").stdout
    assert stands(house) == stood
    shutil.rmtree(more)
    assert load(house).returncode == 0
    assert stands(house) == stood + 1
    assert "ended early" not in shown(house, "parts")["fresh_notice"]


def test_a_kill_while_the_floor_is_computed_leaves_an_answer_that_is_right(house):
    folder = codebase(house.folder / "floor", {"badger": "7135508"}, functions=80)
    loading = begun(house, "load", folder, "--wait", "--no-watch", "--json")
    for line in loading.stdout:
        if json.loads(line).get("phase") == "prefill":
            break
    house.kill()
    loading.communicate(timeout=120)
    house.start()
    assert ask(house, "badger", codex="floor")["answer"].strip().startswith("7135508")
    assert house.lore("codex", "drop", "floor").returncode == 0


def test_a_kill_between_a_new_generation_and_its_floor_loses_neither_changes_nor_answers(house):
    folder = codebase(house.folder / "moves", {"heron": "1000001"}, functions=120)
    (folder / ".lore.toml").write_text("rebase_share = 0.001\n")
    assert house.lore("load", folder, "--wait").returncode == 0
    write_vault(folder, "heron", "2000002")
    until(lambda: newest(house, "moves") == 2)
    house.kill()
    house.start()
    until(lambda: shown(house, "moves")["generation"] == 2)
    assert ask(house, "heron", codex="moves")["answer"].strip().startswith("2000002")
    snippets = [hit["snippet"] for hit in hits(house, question("heron"), "moves", 2)]
    assert any("2000002" in snippet for snippet in snippets)
    assert not any("1000001" in snippet for snippet in snippets)
    assert kept(house, "moves") == [2]
    until(lambda: remains(house) == [])  # a checkpoint may be written just now
    assert house.lore("codex", "drop", "moves").returncode == 0


def kept(house, name):
    """Numbers of the generations in the catalog, as another process sees them."""
    (path,) = (house.folder / "data").rglob("catalog.sqlite")
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as database:
        query = "SELECT number FROM generation JOIN codex ON codex.id = generation.codex WHERE name = ? ORDER BY number"
        found = [number for (number,) in database.execute(query, (name,))]
    database.close()
    return found


def newest(house, name):
    return max(kept(house, name))


def remains(house):
    """Files that a process left behind half-written."""
    return [
        str(path)
        for place in ("data", "cache", "state")
        for path in (house.folder / place).rglob("*")
        if path.name.endswith((".part", ".tmp", ".damaged", "-journal"))
    ]
