"""Questions about symbols on a running daemon: what calls what, by the files as they are now, and nothing from outside."""

import json

import pytest
from support.house import lent

SHOP = "class Shop:\n    def sell(self, item):\n        return item\n\n\nclass Stall(Shop):\n    pass\n"
USE = "from shop import Stall\n\n\ndef market():\n    Stall().sell('an apple')\n"


@pytest.fixture(scope="module")
def house(shared_daemon):
    with lent(shared_daemon) as daemon:
        folder = daemon.folder / "shop"
        folder.mkdir()
        (folder / "shop.py").write_text(SHOP)
        (folder / "use.py").write_text(USE)
        (folder / ".env").write_text("def hidden_key(): pass\n")
        loaded = daemon.lore("load", folder, "--no-watch", "--json")
        assert loaded.returncode == 0, loaded.stderr
        yield daemon


def asked(house, *question):
    done = house.lore("search", *question, "-c", "shop", "--json")
    return done.returncode, [
        f"{one['path']}:{one['line']} {one['qualified']}" for one in json.loads(done.stdout)["symbols"]
    ]


def test_symbols_are_found_by_the_command_line_as_programs_find_them(house):
    assert asked(house, "--definition", "sell") == (0, ["shop.py:2 Shop.sell"])
    assert asked(house, "--callers", "Shop.sell") == (0, ["use.py:4 market"])
    assert asked(house, "--callees", "market") == (0, ["shop.py:6 Stall", "shop.py:2 Shop.sell"])
    assert asked(house, "--implementors", "Shop") == (0, ["shop.py:6 Stall"])
    assert asked(house, "--members", "Shop") == (0, ["shop.py:2 Shop.sell"])
    outlined = house.lore("codex", "outline", "shop.py", "-c", "shop").stdout
    assert outlined == "shop.py:1:class Shop\nshop.py:2:def sell(self, item)\nshop.py:6:class Stall(Shop)\n"


def test_what_the_codex_does_not_hold_is_not_found(house):
    assert asked(house, "--definition", "hidden_key") == (5, [])
    for path in (".env", "/etc/passwd", "../shop/shop.py"):
        assert house.lore("codex", "outline", path, "-c", "shop").returncode == 5
    missing = house.lore("search", "--callers", "sel", "-c", "shop")
    assert (missing.returncode, missing.stderr) == (5, "nothing is named sel; like it: sell\n")


def test_a_load_of_what_changed_is_answered_by_what_changed(house):
    folder = house.folder / "shop"
    (folder / "use.py").write_text(USE.replace("def market", "def fair"))
    assert house.lore("load", folder, "--no-watch").returncode == 0
    assert asked(house, "--callers", "Shop.sell") == (0, ["use.py:4 fair"])
