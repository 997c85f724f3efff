"""Skeletons in every language that has a grammar: made without a network, each line under the number where it stands."""

import socket
from pathlib import Path

import pytest

from codex.documents import Document, lines
from codex.outline.coverage import skeleton
from codex.outline.languages import LANGUAGES, language_of

# Blank lines and comments before the definitions: a number that is only counted up would be wrong.
SAMPLES = {
    "a.py": "# about\n\n\nclass App(Base):\n    '''Runs.'''\n\n    def run(self, host):\n        return host\n",
    "a.js": "// about\n\n/** Runs. */\nclass App {\n  run(host) { return host }\n}\n",
    "a.ts": "// about\n\ninterface App {\n  run(host: string): void\n}\nfunction go(): App { return x }\n",
    "a.tsx": "// about\n\nexport const App = () => <div/>;\n",
    "a.c": "/* about */\n\nstruct app { int host; };\n\nint run(int host) {\n  return host;\n}\n",
    "a.cpp": "// about\n\nnamespace n {\nclass App {\n  void run() {}\n};\n}\n",
    "a.cs": "// about\n\nnamespace N {\n  class App {\n    int Run() { return 1; }\n  }\n}\n",
    "a.rs": "// about\n\nstruct App;\n\nimpl App {\n    fn run(&self) {}\n}\n",
    "a.go": "// about\n\npackage p\n\ntype App struct{}\n\nfunc (a App) Run() {\n}\n",
    "a.java": "// about\n\nclass App {\n  void run() {}\n}\n",
    "a.rb": "# about\n\nmodule M\n  class App\n    def run; end\n  end\nend\n",
    "a.php": "<?php\n// about\n\nclass App {\n  function run() {}\n}\n",
    "a.sh": "# about\n\nrun() {\n  echo 1\n}\n",
    "a.html": '<!-- about -->\n\n<div id="top"></div>\n',
    "a.css": "/* about */\n\n.app { color: red }\n",
    "a.json": '{\n\n"app": 1,\n"run": 2\n}\n',
    "a.toml": "# about\n\n[tool.app]\nrun = 1\n",
    "a.yaml": "# about\n\napp: 1\nrun: 2\n",
    "a.md": "about\n\n# App\n\ntext\n\n## Run\n\nmore\n",
    "a.sql": "-- about\n\nCREATE TABLE app (id INT);\n",
    "a.scala": "// about\n\nobject App {\n  def run(x: Int) = x\n}\n",
    "a.kt": "// about\n\nclass App {\n  fun run() {}\n}\n",
    "a.lua": "-- about\n\nfunction run()\nend\n",
    "a.swift": "// about\n\nclass App {\n  func run() {}\n}\n",
    "a.hs": "-- about\n\nrun :: Int -> Int\nrun x = x\n",
    "a.ex": "# about\n\ndefmodule App do\n  def run(x), do: x\nend\n",
    "a.zig": "// about\n\nfn run() void {}\n",
}
WRITTEN_OUT = Path(__file__).with_name("skeletons")  # NAME.source, as people write it, and NAME.skeleton of it
DATA = {"a.html", "a.css", "a.json", "a.toml", "a.yaml"}  # shown by first lines, or by names of their own


@pytest.fixture(autouse=True)
def _no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: object, **__: object) -> socket.socket:
        raise AssertionError("a skeleton needs no network")

    monkeypatch.setattr(socket, "socket", refused)


@pytest.mark.parametrize("path", SAMPLES)
def test_every_line_of_a_skeleton_stands_under_its_own_number(path: str) -> None:
    text = SAMPLES[path]
    made = skeleton(Document(path, text, "", len(text))).splitlines()
    assert made, "an outline of something"
    for line in made:
        number, shown = line.lstrip().split(" ", 1)
        source = lines(text)[int(number) - 1]
        assert word_of(shown) in source, (line, source)


@pytest.mark.parametrize("path", sorted(SAMPLES.keys() - DATA))
def test_a_skeleton_names_what_a_file_defines(path: str) -> None:
    text = SAMPLES[path]
    made = skeleton(Document(path, text, "", len(text)))
    assert "run" in made.lower() or "app" in made.lower()
    assert "about" not in made or path == "a.md"


@pytest.mark.parametrize("name", sorted(path.stem for path in WRITTEN_OUT.glob("*.source")))
def test_a_skeleton_has_every_signature_and_first_doc_line_of(name: str) -> None:
    text = (WRITTEN_OUT / f"{name}.source").read_text(encoding="utf-8")
    expected = (WRITTEN_OUT / f"{name}.skeleton").read_text(encoding="utf-8")
    assert skeleton(Document(name, text, "", len(text))) == expected


def test_there_are_more_than_fifteen_and_each_is_tried_here() -> None:
    for tried in (SAMPLES, [path.stem for path in WRITTEN_OUT.glob("*.skeleton")]):
        assert {language_of(path) for path in tried} >= set(LANGUAGES)
    assert len({language.name for language in LANGUAGES if not language.prose}) >= 15


def word_of(shown: str) -> str:
    """The first word of a line that is long enough to be looked for."""
    words = "".join(sign if sign.isalnum() else " " for sign in shown).split()
    return max(words[:3], key=len, default="")
