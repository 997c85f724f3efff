"""A daemon of one user, and two others who load, ask and remember: each sees what is theirs, and what is shared."""

import hashlib
import json
from contextlib import ExitStack

import pytest
from support.house import codebase, question, write_vault
from support.users import can_become, daemon_of, give

from codex.trees.sent import frame

OWNER, BEA, CID = 20_001, 20_002, 20_003
USERS = f"""
[sigils.users]
users = [{BEA}, {CID}]
scopes = ["query", "search", "codex:read", "codex:write", "memory:read", "memory:write"]
codices = ["common"]
"""
CANARY = {OWNER: "narwhal", BEA: "walnut", CID: "quince"}
CODE = {OWNER: "1112131", BEA: "4815162", CID: "9273645"}

pytestmark = pytest.mark.skipif(not can_become(BEA), reason="no process of another user can be started here: root can")


@pytest.fixture(scope="module")
def house(models, quoter_model):
    """Everybody has a codebase of their own with the same name, a memory, a session and a trace; one is shared."""
    with daemon_of(OWNER, models, USERS) as daemon:
        for uid, canary in CANARY.items():
            give(codebase(daemon.home(uid) / "work", {canary: CODE[uid]}), uid)
            loaded = daemon.json_of(uid, "load", daemon.home(uid) / "work", "--wait")["codex"]
            assert loaded["name"] == ("work" if uid == OWNER else f"work~{uid}"), loaded
            daemon.json_of(uid, "memory", "add", f"The {canary} cache is Redis.", "-c", "none")
        give(codebase(daemon.folder / "common", {"kettle": "777888"}), OWNER)
        daemon.json_of(OWNER, "load", daemon.folder / "common", "--wait")
        yield daemon


@pytest.fixture(scope="module")
def asked(house):
    """What each got for the question about their own file, in a session of one name."""
    return {
        uid: house.json_of(uid, "ask", "-c", "work", "-s", "talk", question(canary)) for uid, canary in CANARY.items()
    }


def others(uid):
    """What no answer to this user may hold."""
    return [
        word for other in CANARY if other != uid for word in (CANARY[other], CODE[other], f"~{other}", f"-{other}/")
    ]


@pytest.mark.parametrize("uid", CANARY)
def test_each_user_is_answered_from_their_own_files(asked, uid):
    assert CODE[uid] in asked[uid]["answer"]
    assert not [word for word in others(uid) if word in json.dumps(asked[uid])]


LISTS = (
    "/v1/status",
    "/v1/events",
    "/v1/engine",
    "/metrics",
    "/v1/stats/cache",
    "/v1/stats/clients",
    "/v1/stats/memory",
    "/v1/models",
    "/v1/models/local",
    "/v1/codices",
    "/v1/sessions",
    "/v1/sessions/talk",
    "/v1/memories",
    "/v1/traces",
    "/v1/traces/last?prompt=1",
    "/v1/identities",
    "/v1/kept",
)


@pytest.mark.parametrize("path", LISTS)
@pytest.mark.parametrize("uid", CANARY)
def test_no_list_and_no_figure_tells_of_another_user(house, asked, uid, path):
    status, told = house.reply(uid, "GET", path, head=path == "/v1/events")
    assert status == 200
    assert not [word for word in others(uid) if word in told], told


@pytest.mark.parametrize("uid", [BEA, CID])
@pytest.mark.parametrize("other", CANARY)
def test_nothing_of_another_user_is_found_by_its_right_name(house, asked, uid, other):
    if uid == other:
        return
    name = "work" if other == OWNER else f"work~{other}"
    trace = asked[other]["lore"]["trace"]
    own = ("work", f"work~{uid}")  # what the short name means to this user
    for method, path, body in (
        ("GET", f"/v1/codices/{name}", None),
        ("GET", f"/v1/traces/{trace}", None),
        ("DELETE", f"/v1/codices/work~{other}", None),
        ("POST", f"/v1/codices/work~{other}/reload", None),
        ("POST", "/v1/search", {"query": CANARY[other], "codex": name}),
        ("POST", "/v1/symbols", {"codex": name, "name": "unlock", "what": "definition"}),
        ("POST", "/v1/read", {"codex": name, "path": f"{CANARY[other]}.py"}),
        ("POST", "/v1/plan", {"model": f"lore/{name}", "messages": [{"role": "user", "content": "?"}], "prompt": True}),
        ("POST", f"/v1/sent/{name}/files", b""),
    ):
        status, told = house.reply(uid, method, path, body)
        assert status in (400, 404) or name in own, (method, path, told)
        assert CODE[other] not in told
        assert f'"{CANARY[other]}.py' not in told or path == "/v1/read"


def test_what_is_shared_is_answered_to_both_and_its_floor_is_computed_once(house):
    found = [house.json_of(uid, "ask", "-c", "common", question("kettle")) for uid in (BEA, CID)]
    assert all("777888" in one["answer"] for one in found)
    floors = [sum(block["cached"] for block in one["lore"]["blocks"][:2]) for one in found]
    assert floors[0] == floors[1] > 0
    assert sum(block["cached"] for block in found[1]["lore"]["blocks"][2:]) == 0, "the rest of BEA's prompt is hers"
    assert house.reply(BEA, "DELETE", "/v1/codices/common")[0] == 403


def test_an_edit_sends_the_file_that_changed(house):
    give(write_vault(house.home(BEA) / "work", "almond", "246810"), BEA)
    done = house.of(BEA, "load", house.home(BEA) / "work", "--wait")
    assert (done.returncode, "sent to the daemon: 1 file\n" in done.stderr) == (0, True), done.stderr
    assert "246810" in house.json_of(BEA, "ask", "-c", "work", question("almond"))["answer"]


def test_who_follows_sends_what_changes_while_the_command_runs(house):
    with house.begun_of(BEA, "load", house.home(BEA) / "work", "--watch") as command:
        assert until(command, "following changes")
        give(write_vault(house.home(BEA) / "work", "cashew", "135791"), BEA)
        assert until(command, "sent 1 changed file")
    assert "135791" in house.json_of(BEA, "ask", "-c", "work", question("cashew"))["answer"]


def until(command, words):
    """The line of its standard error that has these words."""
    return next((line for line in command.stderr if words in line), "")


def test_two_users_who_remember_at_the_same_moment_have_each_their_own(house):
    colours = {BEA: ("amber", "azure", "ivory"), CID: ("coral", "khaki", "mauve")}
    with ExitStack() as running:
        at_once = [
            (uid, running.enter_context(house.begun_of(uid, "memory", "add", f"The {one} lamp is lit.", "-c", "none")))
            for pair in zip(*([(uid, one) for one in colours[uid]] for uid in colours), strict=True)
            for uid, one in pair
        ]
        ended = [(uid, command.communicate(timeout=100)[1], command.returncode) for uid, command in at_once]
    assert [status for _, _, status in ended] == [0] * len(ended), ended
    for uid, own in colours.items():
        (other,) = set(colours) - {uid}
        told = json.dumps(house.json_of(uid, "memory", "list"))
        assert [one for one in own if f"The {one} lamp" not in told] == []
        assert [one for one in colours[other] if one in told] == []


def test_a_link_to_another_users_file_is_not_followed(house):
    (house.home(CID) / "work" / "stolen.py").symlink_to(house.home(BEA) / "work" / "walnut.py")
    loaded = house.json_of(CID, "load", house.home(CID) / "work", "--wait")["codex"]
    assert loaded["skipped"]["symbolic link"] == 1
    assert CODE[BEA] not in house.reply(CID, "POST", "/v1/search", {"query": "walnut", "codex": "work"})[1]


def offered(path="a.py", raw=b"x = 1\n", **more):
    return {"path": path, "size": len(raw), "sha256": hashlib.sha256(raw).hexdigest(), **more}


@pytest.mark.parametrize(
    "file",
    [
        offered("/etc/passwd"),
        offered("../../secret"),
        offered("a/../b.py"),
        offered("a//b.py"),
        offered("."),
        offered("\\x2e\\x2e/x"),
        offered("a\\u0000b"),
        {**offered(), "sha256": "../../../etc/passwd"},
        {**offered(), "size": -1},
        {**offered(), "size": 1 << 40},
    ],
    ids=lambda file: f"{file['path']} {file['sha256'][:9]} {file['size']}",
)
def test_no_offer_names_what_lies_outside_of_the_codex(house, file):
    status, told = house.reply(BEA, "POST", "/v1/sent", {"name": "evil", "files": [file]})
    assert status == 400, told


def test_the_daemon_opens_no_path_for_a_user(house):
    for body in ({"path": "/etc"}, {"path": str(house.home(OWNER) / "work")}, {"path": "/etc", "more": ["/usr"]}):
        status, told = house.reply(BEA, "POST", "/v1/codices", body)
        assert (status, json.loads(told)["error"]["code"]) == (403, "files_wanted")
    for body in ({"path": "/etc", "name": "etc"}, {"path": "/etc", "name": "etc", "more": ["/usr"]}):
        status, told = house.reply(BEA, "POST", "/v1/codices", {**body, "sent": True})
        assert "passwd" not in told
        assert status == 400 or '"error"' in told, told
    assert house.reply(BEA, "POST", "/v1/codices", {"path": "/x", "name": f"work~{CID}", "sent": True})[0] == 400
    assert house.reply(BEA, "POST", "/v1/codices", {"path": "file:///etc"})[0] == 403


def test_only_the_bytes_that_were_offered_are_kept(house):
    good, other = b"x = 1\n", b"y = 2\n"
    assert house.reply(BEA, "POST", "/v1/sent", {"name": "small", "files": [offered(raw=good)]})[0] == 200
    place = "/v1/sent/small/files"
    digest = hashlib.sha256(good).hexdigest()
    for body in (frame(digest, other), frame(hashlib.sha256(other).hexdigest(), other), frame(digest, good)[:-1], b"x"):
        assert house.reply(BEA, "POST", place, body)[0] == 400
    assert house.reply(BEA, "POST", place, frame(digest, good)) == (200, '{"taken":1}')
    assert house.reply(CID, "POST", place, frame(digest, good))[0] == 400, "CID has no codex of that name"


def test_what_was_sent_lies_where_only_the_daemon_reads_it(house):
    (sent,) = house.folder.rglob("sent")
    assert sent.stat().st_uid == OWNER
    assert {place.stat().st_mode & 0o77 for place in sent.rglob("*")} == {0}
