"""The pictures of the documents: each is there, small, shown somewhere, and fetches nothing."""

import re
import subprocess
from pathlib import Path

import pytest
from pictures import FOLDER, LARGEST, MADE, framed, settled

ROOT = Path(__file__).resolve().parents[3]
SHOWN = re.compile(r"""(?:\]\(|src=["']|srcset=["'])([^)"'#]+\.(?:svg|png))""")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
PICTURES = sorted(FOLDER.iterdir())


def shown_by(page: Path) -> list[Path]:
    return [(page.parent / target).resolve() for target in SHOWN.findall(page.read_text())]


def test_the_documents_show_the_pictures_that_there_are_and_no_others():
    assert {picture for page in PAGES for picture in shown_by(page)} == set(PICTURES)


def test_what_the_script_makes_is_there():
    assert set(MADE) <= {picture.name for picture in PICTURES}


@pytest.mark.parametrize("picture", PICTURES, ids=lambda path: path.name)
def test_a_picture_is_small_and_whole_and_fetches_nothing(picture):
    data = picture.read_bytes()
    assert len(data) <= LARGEST
    if picture.suffix == ".png":
        assert (data[:8], data[-8:-4]) == (b"\x89PNG\r\n\x1a\n", b"IEND")
    else:
        assert set(re.findall(r"https?://[^\s\"'<)]+", data.decode())) <= {
            "http://www.w3.org/2000/svg",
            "https://www.textualize.io",  # a comment of the frame's
        }


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("README.md", {"terminal.svg", "dash-light.png", "dash-dark.png"}),
        ("docs/chat.md", {"terminal.svg"}),
        ("docs/top.md", {"top.svg"}),
        ("docs/dash.md", {"dash-light.png", "dash-dark.png", "turn.png"}),
    ],
)
def test_a_page_shows_what_it_tells_of(page, names):
    assert names <= {picture.name for picture in shown_by(ROOT / page)}


def test_of_a_line_that_was_written_over_its_last_text_is_left():
    assert settled("computing, 5 %\r\x1b[Kcomputing, 9 %\r\x1b[K\x1b[2mdone\x1b[0m\r\n") == "\x1b[2mdone\x1b[0m\n"
    assert settled("is not \r\x1b[Jis not stable\r\n\r\nnext\r\n") == "is not stable\n\nnext\n"


def test_a_frame_has_what_the_terminal_had_and_no_fonts_of_others():
    drawn = framed("\x1b[1m$ lore ask\x1b[0m\nstable\n").replace("&#160;", " ")
    assert ("$ lore ask" in drawn, "stable" in drawn, "@font-face" in drawn) == (True, True, False)


def test_make_pictures_runs_the_script():
    done = subprocess.run(["make", "-n", "pictures"], cwd=ROOT, capture_output=True, text=True, check=True)
    assert "scripts/pictures.py" in done.stdout
    assert "system_packages.sh tests" in done.stdout
