"""A program that takes minutes says how far it is, and its words where it fails."""

import io
import sys

import pytest
import watched

# Says each word given, and goes on once it is told to: nothing here waits for time.
SPEAKER = "import sys\nfor word in sys.argv[1:]: print(word, flush=True)\n"


@pytest.fixture
def speaker(tmp_path):
    """`speaker(goes_on_when, *words)`: a program that ends when the file exists."""
    script = tmp_path / "speaker.py"
    script.write_text(SPEAKER + "from pathlib import Path\nwhile not Path(__file__).with_name('end').exists(): pass\n")
    return [sys.executable, "-P", str(script)]


def test_how_far_a_program_is_is_said_until_it_ends(speaker, tmp_path, monkeypatch):
    said = []

    def show(line):
        said.append(line)
        if "50 %" in line:
            (tmp_path / "end").touch()

    monkeypatch.setattr(watched, "show", show)
    sink = io.StringIO()
    assert watched.run([*speaker, "[2/4] Building x"], "Compiling", watched.compiled, sink=sink, every_s=0.01) == 0
    assert said[-1].startswith("Compiling, 50 %, ")
    assert sink.getvalue() == "[2/4] Building x\n"


def test_the_last_words_of_what_failed_are_shown(capfd):
    status = watched.run(
        [sys.executable, "-P", "-c", "raise SystemExit('no such package')"], "Installing", lambda line: ""
    )
    assert (status, capfd.readouterr().err) == (1, "no such package\n")


@pytest.mark.parametrize(
    ("line", "words"),
    [("  [30/120] Building C object a.o", "25 %"), ("[ 43%] Building CXX object b.o", "43 %"), ("-- Found Git", "")],
)
def test_compilers_count_their_steps(line, words):
    assert watched.compiled(line) == words


def test_packages_are_counted_as_pip_comes_to_them(tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("anyio==4.1 \\\n    --hash=sha256:00\nlore-x==1.0\n    # via anyio==4\n")
    far = watched.Installed([lock])
    lines = [
        "Collecting anyio==4.1 (from -r requirements.lock (line 1))",
        "  Downloading https://files.example/anyio-4.1-py3-none-any.whl (97 kB)",
        "Requirement already satisfied: lore-x==1.0",
        "Installing collected packages: anyio",
        "Successfully installed anyio-4.1",
    ]
    assert [far(line) for line in lines] == [
        "1 of 2 packages (anyio)",
        "",
        "2 of 2 packages (lore-x)",
        "writing them into .venv",
        "",
    ]


def test_long_times_have_minutes():
    assert [watched.duration(9.4), watched.duration(185.0)] == ["9 s", "3 min 05 s"]
