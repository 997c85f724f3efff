"""Questions about symbols of a small codex; and on our own source, what `ast` says of it."""

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import few

from codex.documents import Document, document_from, name_of
from codex.graph.symbol_index import SymbolIndex, packed_file
from codex.outline.facts import facts, from_bytes, to_bytes

SHOP = {
    "shop/__init__.py": "from .carts import Cart as Basket\nfrom .carts import *\n",
    "shop/carts.py": """\
from __future__ import annotations
import shop.prices as prices
from .base import Store


class Cart(Store):
    limit: int = 3
    _hidden = 1

    def __init__(self, store: Store) -> None:
        self.store = store
        self.table = prices.Table()

    def add(self, name: str) -> Cart:
        self.check(name)
        self.store.save()
        self.table.price_of(name)
        return self

    def save(self):
        super().save()


def fill(names, cart=None):
    cart = cart or Cart(None)
    for name in names:
        cart.add(name).add(name)
    cart.items()
    return cart
""",
    "shop/base.py": """\
class Store:
    def check(self, name):
        return name

    def save(self):
        pass


class Other:
    def add(self, name):
        pass


class Deep(Store):
    class Inner:
        pass
""",
    "shop/prices.py": """\
class Table:
    def price_of(self, name):
        return lookup(name)


def lookup(name):
    return 1
""",
    "app.py": """\
from shop import Basket

basket = Basket(None)
basket.add('x')


def unknown(thing):
    thing.add('y')
    thing.price_of('z')
""",
}


def document(path: str, text: str) -> Document:
    found = document_from(path, text.encode())
    assert found is not None
    return found


def index_of(files: Mapping[str, str] = SHOP) -> SymbolIndex:
    found = [facts(document(path, text)) for path, text in files.items()]
    return SymbolIndex({one.path: packed_file(one, to_bytes(one)) for one in found})


@pytest.fixture(scope="module")
def shop() -> SymbolIndex:
    return index_of()


def places(shop: SymbolIndex, what: str, name: str) -> list[str]:
    found = shop.answer(what, name)  # type: ignore[arg-type]
    return [
        f"{one.path}:{one.line} {one.qualified}" + (f" {list(one.uses)}" if one.uses else "") + "?" * (not one.certain)
        for one in found.symbols
    ]


def test_a_definition_is_found_by_its_own_name_and_by_names_before_it(shop: SymbolIndex) -> None:
    for name in ("Cart", "carts.Cart", "shop.carts.Cart", "shop.Cart", "carts.py:Cart", "shop/carts.py:Cart", " Cart "):
        assert places(shop, "definition", name) == ["shop/carts.py:6 Cart"]
    (found,) = shop.answer("definition", "Cart.add").symbols
    assert (found.kind, found.signature, found.end) == ("method", "def add(self, name: str) -> Cart", 18)


def test_a_name_of_several_definitions_lists_them_and_what_is_asked_of_each(shop: SymbolIndex) -> None:
    assert places(shop, "definition", "add") == ["shop/base.py:10 Other.add", "shop/carts.py:14 Cart.add"]
    found = shop.answer("callers", "save")
    assert [one.qualified for one in found.meant] == ["Store.save", "Cart.save"]
    assert [(one.qualified, one.which) for one in found.symbols] == [
        ("Cart.add", "shop/base.py:5 Store.save"),
        ("Cart.save", "shop/base.py:5 Store.save"),
    ]


def test_callers_are_found_through_annotations_bases_aliases_and_what_functions_return(shop: SymbolIndex) -> None:
    assert places(shop, "callers", "Cart.add") == ["app.py:1 app [4]", "shop/carts.py:24 fill [27]"]
    assert places(shop, "callers", "Store.check") == ["shop/carts.py:14 Cart.add [15]"]
    assert places(shop, "callers", "Store.save") == [
        "shop/carts.py:14 Cart.add [16]",
        "shop/carts.py:20 Cart.save [21]",
    ]
    assert places(shop, "callers", "Cart") == ["app.py:1 app [3]", "shop/carts.py:24 fill [25]"]
    assert places(shop, "callers", "Table") == ["shop/carts.py:10 Cart.__init__ [12]"]


def test_a_call_of_whom_nobody_knows_is_told_as_uncertain_and_only_of_a_rare_name(shop: SymbolIndex) -> None:
    assert places(shop, "callers", "price_of") == ["shop/carts.py:14 Cart.add [17]", "app.py:7 unknown [9]?"]
    assert not any("unknown" in one for one in places(shop, "callers", "add"))


def test_callees_are_the_definitions_of_the_codex_in_the_order_of_their_calls(shop: SymbolIndex) -> None:
    assert places(shop, "callees", "Cart.add") == [
        "shop/base.py:2 Store.check [15]",
        "shop/base.py:5 Store.save [16]",
        "shop/prices.py:2 Table.price_of [17]",
    ]


def test_implementors_are_all_classes_below_and_what_overrides_a_method(shop: SymbolIndex) -> None:
    assert places(shop, "implementors", "Store") == ["shop/base.py:14 Deep", "shop/carts.py:6 Cart"]
    assert places(shop, "implementors", "Store.save") == ["shop/carts.py:20 Cart.save"]
    assert places(shop, "implementors", "Other") == []


def test_members_are_those_of_a_class_private_ones_too_or_of_a_module(shop: SymbolIndex) -> None:
    assert [one.name for one in shop.answer("members", "Cart").symbols] == [
        "limit",
        "_hidden",
        "__init__",
        "add",
        "save",
    ]
    assert [one.name for one in shop.answer("members", "shop.base").symbols] == ["Store", "Other", "Deep"]


def test_an_outline_has_all_definitions_of_a_file_by_its_path_or_its_end(shop: SymbolIndex) -> None:
    names = ["Table", "Table.price_of", "lookup"]
    for path in ("shop/prices.py", "prices.py", "./shop/prices.py"):
        assert [one.qualified for one in shop.answer("outline", path).symbols] == names


def test_an_outline_is_found_by_the_name_that_an_odd_file_is_shown_by() -> None:
    path = name_of("new\nline/inv\udcff.py")
    assert [one.name for one in index_of({path: "def found(): ...\n"}).answer("outline", path).symbols] == ["found"]


def test_each_of_several_variables_that_one_line_sets_says_which_it_is() -> None:
    line = 'STATUS_VALID, STATUS_MAPPED, STATUS_DEVIATION, STATUS_IGNORED = b"VMDI"'
    shown = [one.signature for one in index_of({"a.py": f"{line}\n"}).answer("outline", "a.py").symbols]
    head = line[:60]
    assert shown[0] == f"{head}…"
    assert shown[1:] == [f"{head} … {name}" for name in ("STATUS_MAPPED", "STATUS_DEVIATION", "STATUS_IGNORED")]


def test_where_nothing_has_a_name_those_like_it_are_named(shop: SymbolIndex) -> None:
    assert shop.answer("definition", "price_off").near == ("price_of",)
    assert shop.answer("callers", "Catr").near == ("Cart",)
    assert shop.answer("definition", "Sto").near[0] == "Store"
    assert shop.answer("definition", "pric").near[:1] == ("price_of",)
    assert shop.answer("outline", "shop/price.py").near == ("shop/prices.py",)
    assert (shop.answer("definition", "").symbols, shop.answer("callers", "..").near) == ((), ())


def test_a_library_of_the_name_of_a_module_of_the_codex_is_not_that_module() -> None:
    files = {
        "pkg/__init__.py": "",
        "pkg/json.py": "def dumps(x):\n    return x\n",
        "pkg/a.py": "import json\njson.dumps(1)\n",
        "pkg/b.py": "from . import json\njson.dumps(1)\n",
    }
    assert places(index_of(files), "callers", "dumps") == ["pkg/b.py:1 pkg.b [2]"]


def test_modules_that_import_each_other_whole_end_a_look_up() -> None:
    files = {"a.py": "from b import *\nrun()\n", "b.py": "from a import *\nx = y\ny = x\nx.go_far_away()\n"}
    assert places(index_of(files), "callers", "x") == []


def test_variables_that_are_set_from_each_other_a_thousand_times_end_a_look_up() -> None:
    names = [f"v{n}" for n in range(40)]
    lines = [f"    {one} = {other}.step().next" for one in names for other in names]
    text = "def step(): pass\n\n\ndef run():\n" + "\n".join(lines) + "\n    v0.step()\n"
    assert places(index_of({"a.py": text}), "callers", "step") == []


def test_many_modules_that_take_each_other_over_whole_and_many_diamonds_end_a_look_up() -> None:
    names = [f"m{n}" for n in range(12)]
    files = {f"{one}.py": "".join(f"from {other} import *\n" for other in names if other != one) for one in names}
    files["m0.py"] += "missing()\nfound()\n"
    files["m11.py"] += "def found(): pass\n"
    rows = [f"class C{n}(C{n + 1}, D{n + 1}): pass\nclass D{n}(C{n + 1}, D{n + 1}): pass\n" for n in range(40)]
    files["c.py"] = (
        "".join(rows) + "class C40:\n    def last(self): pass\nclass D40: pass\nC0().nothing()\nC0().last()\n"
    )
    index = index_of(files)
    assert places(index, "callers", "found") == ["m0.py:1 m0 [13]"]
    assert places(index, "callers", "last") == ["c.py:1 c [85]"]
    assert len(places(index, "implementors", "C40")) == 80


def test_classes_that_are_derived_from_each_other_end_a_look_up() -> None:
    text = "class A(B):\n    def go(self): self.gone()\n\n\nclass B(A):\n    def gone(self): pass\n"
    assert places(index_of({"a.py": text}), "callers", "gone") == ["a.py:2 A.go [2]"]
    assert places(index_of({"a.py": text}), "implementors", "A") == ["a.py:5 B"]


def test_a_definition_that_takes_the_place_of_another_has_its_callers() -> None:
    text = "@overload\ndef f(x: int): ...\n@overload\ndef f(x: str): ...\ndef f(x):\n    pass\n\nf(1)\n"
    assert places(index_of({"a.py": text}), "callers", "f") == ["a.py:1 a [8]"]
    assert places(index_of({"a.py": text}), "definition", "f") == ["a.py:2 f", "a.py:4 f", "a.py:5 f"]


def test_of_a_language_without_receivers_a_rare_name_is_enough_and_said_to_be_uncertain() -> None:
    files = {
        "a.go": "package a\n\nfunc Compute(x int) int {\n\treturn x\n}\n",
        "b.go": "package a\n\nfunc Use() int {\n\treturn Compute(1)\n}\n",
        "C.java": "class Base {}\nclass Child extends Base {\n  void run() {}\n}\n",
    }
    index = index_of(files)
    assert places(index, "callers", "Compute") == ["b.go:3 Use [4]?"]
    assert places(index, "implementors", "Base") == ["C.java:2 Child"]


def test_a_name_of_code_is_not_a_heading_of_the_same_name() -> None:
    index = index_of({"a.py": "def install():\n    pass\n", "README.md": "# install\n\nText.\n"})
    assert places(index, "definition", "install") == ["a.py:1 install"]
    assert places(index, "outline", "README.md") == ["README.md:1 install"]


# -- laws

WORDS = st.sampled_from(
    ["a", "b", "c", "self.x", "a.b", "a()", "super()", "(a or b)", "a[0].b", "'x'", "x" * 300, "a b", ")", "X[a | b]"]
)
NAME, MODULE = st.sampled_from("abc*"), st.sampled_from([".", ".m", "m", "n.m", ".."])
LINES = st.one_of(
    st.builds("class {}({}):\n    def {}(self, a: {}): return {}.{}()\n".format, NAME, NAME, NAME, WORDS, WORDS, NAME),
    st.builds("from {} import {} as {}\n".format, MODULE, NAME, NAME),
    st.builds("from {} import {}\n".format, MODULE, NAME),
    st.builds("{} = {}\n{}()\n".format, WORDS, WORDS, WORDS),
    st.builds("def {}({}) -> {}:\n    {}.{}()\n".format, NAME, NAME, WORDS, WORDS, NAME),
    st.text("aé(:\n \t'\"#@=.\\", max_size=40),
)
PATHS = st.sampled_from(["m.py", "n/__init__.py", "n/m.py", "x.go", "y.md"])
FILES = st.dictionaries(PATHS, st.lists(LINES, max_size=6).map("".join), max_size=4)


@few(25)
@given(FILES, st.text("abc.:/m*", max_size=6))
def test_every_answer_names_places_that_are_there(files: dict[str, str], name: str) -> None:
    index = index_of(files)
    for asked in (name, "a", "m.py"):
        for what in ("definition", "callers", "callees", "implementors", "members", "outline"):
            for one in index.answer(what, asked).symbols:
                count = files[one.path].replace("\r\n", "\n").replace("\r", "\n").count("\n") + 1
                assert 1 <= one.line <= count
                assert all(line >= 1 for line in one.uses)


@given(st.lists(LINES, max_size=6).map("".join))
def test_facts_are_the_same_behind_bytes(text: str) -> None:
    told = facts(document("m.py", text)) if document_from("m.py", text.encode()) else None
    assert told is None or from_bytes("m.py", to_bytes(told)) == told


# -- our own source

ROOT = Path(__file__).resolve().parents[4]
OURS = sorted((ROOT / "formatters").glob("*.py")) + sorted((ROOT / "codex" / "graph").glob("*.py"))


def defined(body: list[ast.stmt], holders: tuple[str, ...] = ()) -> Iterator[tuple[str, int]]:
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            yield ".".join((*holders, node.name)), node.lineno
            yield from defined(node.body, (*holders, node.name))


def test_our_own_classes_and_functions_are_found_where_ast_has_them() -> None:
    index = index_of({str(path.relative_to(ROOT)): path.read_text() for path in OURS})
    for path in OURS:
        name = str(path.relative_to(ROOT))
        found = {
            (one.qualified, one.line)
            for one in index.answer("outline", name).symbols
            if one.kind not in ("variable", "field")
        }
        assert found == set(defined(ast.parse(path.read_text()).body))
