"""A daemon whose socket belongs to a group: its members ask, by what the configuration gives the group, and the kernel lets
nobody else in."""

import grp
import json
import os
import socket
import stat

import pytest
from support.house import CODES, codebase, question
from support.users import can_become, daemon_of, give

OWNER, MEMBER, GUEST, STRANGER = 20_011, 20_012, 20_013, 20_014
NOT_PERMITTED = 6
TEAM, READERS = (one.gr_gid for one in sorted(grp.getgrall(), key=lambda one: one.gr_gid)[-2:])
GROUPS = {OWNER: [TEAM], MEMBER: [TEAM], GUEST: [READERS, TEAM]}
CONFIG = f"""
[serve]
socket_group = "{grp.getgrgid(TEAM).gr_name}"
[sigils.team]
groups = ["{grp.getgrgid(TEAM).gr_name}"]
scopes = ["query", "search", "codex:read"]
codices = ["vaults"]
"""

pytestmark = pytest.mark.skipif(not can_become(MEMBER), reason="no process of another user can be started: root can")


@pytest.fixture(scope="module")
def house(models, quoter_model):
    with daemon_of(OWNER, models, CONFIG, GROUPS) as daemon:
        give(codebase(daemon.home(OWNER) / "vaults"), OWNER)
        daemon.json_of(OWNER, "load", daemon.home(OWNER) / "vaults", "--wait")
        yield daemon


def test_the_socket_is_the_group_s_and_closed_to_all_others(house):
    found = house.socket.stat()
    assert (found.st_uid, found.st_gid, stat.S_IMODE(found.st_mode)) == (OWNER, TEAM, 0o660)


@pytest.mark.parametrize("uid", [MEMBER, GUEST])
def test_a_member_is_answered_by_the_scopes_of_the_group_and_no_others(house, uid):
    answer = house.json_of(uid, "ask", question("zebra"), "-c", "vaults", "--max-tokens", "8")
    assert answer["answer"].strip().startswith(CODES["zebra"])
    refused = house.of(uid, "memory", "add", "The kettle is red.", "-c", "none")
    assert (refused.returncode, "memory:write" in refused.stderr) == (NOT_PERMITTED, True), refused.stderr


def test_who_is_not_in_the_group_is_refused_by_the_kernel_and_told_so(house):
    done = house.of(STRANGER, "status")
    assert (done.returncode, done.stderr) == (
        NOT_PERMITTED,
        f"lore: {house.socket} may not be used by you\n      its group can be joined, or its owner can configure a sigil\n",
    )
    groups = os.getgroups()
    os.setgroups([])
    try:
        os.setegid(STRANGER)
        os.seteuid(STRANGER)
        with socket.socket(socket.AF_UNIX) as one, pytest.raises(PermissionError):
            one.connect(str(house.socket))
    finally:
        os.seteuid(0)
        os.setegid(0)
        os.setgroups(groups)
    assert json.loads(house.of(OWNER, "status", "--json").stdout)["codices"], "the daemon goes on"
