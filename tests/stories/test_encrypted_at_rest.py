"""What a daemon with a key keeps: nothing of it is read without the key, and all of it is there again with it."""

import json
import subprocess
from array import array
from pathlib import Path

import pytest
from private_daemon import DaemonError
from support.house import (
    CODES,
    ask,
    blocks,
    cached_whole,
    codebase,
    counters,
    living,
    question,
    remembered,
    reply,
    until,
)

pytest.importorskip("sqlcipher3", reason="the extra `encryption` is not installed")
MEMORY = "The heron pumpkin is kept in the lighthouse cellar."
SAID = question("zebra")
SEALED = ("*.kv", "memories.sqlite3*", "sessions.sqlite3*", "traces.sqlite3*")


def key_in(folder: Path, name: str, secret: bytes) -> dict[str, str]:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "lorekeep.key").write_bytes(secret)
    return {"LORE_SECURITY__ENCRYPT": "credential", "CREDENTIALS_DIRECTORY": str(folder / name)}


def used(daemon):
    """A codex, a conversation, a memory and a trace, all of it on the disk."""
    assert daemon.lore("load", codebase(daemon.folder / "vaults"), "--wait", "--no-watch").returncode == 0
    assert daemon.lore("memory", "add", MEMORY).returncode == 0
    answer = ask(daemon, "zebra")
    until(lambda: counters(daemon)["tier_segments"] == len(list(daemon.folder.rglob("*.kv"))) > 1)
    return answer


def kept(daemon):
    """All bytes of what is encrypted where a key is set, with what SQLite has beside a file."""
    return b"".join(path.read_bytes() for pattern in SEALED for path in sorted(daemon.folder.rglob(pattern)))


def canaries(daemon):
    """Question, memory and code, as text and as token ids."""
    texts = (SAID, MEMORY, CODES["zebra"])
    ids = [array("I", reply(daemon, "/tokenize", {"content": f" {text}"})["tokens"]) for text in texts]
    as_ids = {f"ids of {text}": one[1:-1].tobytes() for text, one in zip(texts, ids, strict=True)}
    return {**{text: text.encode() for text in texts}, **as_ids}


def names_found(daemon, wanted):
    data = kept(daemon)
    return {name for name, one in wanted.items() if one in data}


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    folder = tmp_path_factory.mktemp("keys")
    return {name: key_in(folder, name, secret * 32) for name, secret in (("right", b"k"), ("wrong", b"q"))}


@pytest.fixture(scope="module")
def house(models, keys):
    """Used plainly first, which shows what there is to find, then started with a key."""
    with living(models) as daemon:
        used(daemon)
        daemon.wanted = canaries(daemon)
        daemon.plainly = names_found(daemon, daemon.wanted)
        daemon.stop()
        daemon.environment |= keys["right"]
        daemon.start()
        used(daemon)
        yield daemon


def refused(daemon, change):
    """What the daemon says that does not start with these variables; its own are as before."""
    daemon.stop()
    before = dict(daemon.environment)
    daemon.environment = {name: value for name, value in {**before, **change}.items() if value is not None}
    try:
        with pytest.raises(DaemonError) as error:
            daemon.start()
    finally:
        daemon.process, daemon.environment = None, before
    return str(error.value)


def test_what_was_kept_plainly_is_found_and_after_one_start_with_a_key_no_byte_of_it(house):
    assert house.plainly >= {SAID, MEMORY}, "the look at the files would find it"
    assert any(name.startswith("ids of") for name in house.plainly), "token ids are text, too"
    assert names_found(house, house.wanted) == set()
    assert [one["text"] for one in remembered(house)] == [MEMORY]
    assert reply(house, "/v1/status")["encrypted"] == "credential"
    assert "by the key of credential" in house.lore("status", "-v").stdout


def test_after_a_kill_the_floor_and_all_conversations_are_there_and_nothing_of_the_floor_is_computed(house):
    session = ask(house, "walrus")["lore"]["session"]
    until(lambda: counters(house)["tier_segments"] == len(list(house.folder.rglob("*.kv"))))
    house.kill()
    house.start()
    answer = ask(house, "zebra")
    assert answer["answer"].strip().startswith(CODES["zebra"])
    assert cached_whole(answer["lore"], "identity", "codex")
    assert blocks(answer["lore"])["codex"]["from"] in ("disk", "ram"), "it may be restored in advance"
    own = sum(blocks(answer["lore"])[kind]["tokens"] for kind in ("environment", "karma", "state", "query"))
    assert counters(house)["computed_tokens"] <= own + answer["usage"]["completion_tokens"], "nobody computed the floor"
    assert session in {one["name"] for one in reply(house, "/v1/sessions")["sessions"]}
    assert names_found(house, house.wanted) == set()


def test_another_key_or_none_is_named_and_nothing_is_overwritten(house, keys):
    house.stop()
    before = kept(house)
    assert "encrypted, and with another key" in refused(house, keys["wrong"])
    assert "CREDENTIALS_DIRECTORY is not set" in refused(house, {"CREDENTIALS_DIRECTORY": None})
    assert "encrypted, and no key is set" in refused(house, {"LORE_SECURITY__ENCRYPT": "off"})
    databases = [path for pattern in SEALED[1:] for path in house.folder.rglob(pattern)]
    assert all(path.read_bytes() in before for path in databases)
    house.start()
    assert [one["text"] for one in remembered(house)] == [MEMORY]


def test_the_doctor_tells_what_is_encrypted_and_what_no_daemon_could_read(house):
    found = {one["name"]: one for one in json.loads(house.lore("doctor", "--json").stdout)["checks"]}
    assert found["encryption"]["ok"]
    assert "memories.sqlite3, sessions.sqlite3" in found["encryption"]["detail"]
    assert found["databases"]["ok"]
    off = json.loads(house.lore("doctor", "--json", environment={"LORE_SECURITY__ENCRYPT": "off"}).stdout)["checks"]
    (about,) = [one for one in off if one["name"] == "encryption"]
    assert (about["ok"], "no daemon can read them" in about["detail"]) == (False, True)


def test_the_key_is_in_no_argument_and_no_variable_of_the_engine(house):
    secret = b"k" * 32
    house.json("pause")
    house.json("resume")  # the first engine may be a fork, of which /proc does not show the environment
    until(lambda: reply(house, "/v1/status")["engine"]["state"] == "ready")
    children = subprocess.run(["ps", "-eo", "pid,args"], capture_output=True, text=True, check=True).stdout
    found = [Path(f"/proc/{line.split()[0]}") for line in children.splitlines() if "orchestrator.engine" in line]
    assert found
    for process in found:
        for part in ("cmdline", "environ"):
            assert secret not in (process / part).read_bytes()


def test_a_computed_prefix_is_not_exported_for_machines_that_do_not_have_the_key(house):
    done = house.lore("codex", "export", "vaults", house.folder / "vaults.floor")
    assert done.returncode != 0
    assert "encrypted here" in done.stderr
    assert not (house.folder / "vaults.floor").exists()
