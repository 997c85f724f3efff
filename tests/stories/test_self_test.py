"""`lore doctor --self-test`, as a newcomer runs it."""

import json


def test_the_self_test_passes(new_daemon):
    nobody = new_daemon()  # never started: the self-test runs a daemon of its own
    done = nobody.lore("doctor", "--self-test", "--json", timeout_s=200)
    report = json.loads(done.stdout)
    assert report["ok"], report
    assert done.returncode == 0
    assert [check["name"] for check in report["checks"]] == ["start 1", "load", "ask", "start 2", "ask again"]
