"""A model that embeds is configured: chunks get their vectors in the background, and search goes by them too."""

import asyncio
import os
import shutil
import signal
from contextlib import asynccontextmanager

import pytest
from support.real_engine import next_child
from support.turns import told_turns

from orchestrator import bootstrap
from orchestrator.errors import NotFound
from orchestrator.model.host import host_of
from orchestrator.service import Principal
from orchestrator.settings.model import EmbeddingSettings, ModelSettings, Settings
from orchestrator.settings.paths import Paths
from orchestrator.wire.memories import MemoryBody
from orchestrator.wire.requests import LoadBody

OWNER = Principal(uid=os.getuid(), gid=os.getgid(), pid=1, scopes=frozenset({"admin"}))
FILES = {
    "net.py": "def open_line(target):\n    '''Connects to a socket, and connects again when the socket is refused.'''\n",
    "store.py": "class TokenStore:\n    '''Keeps token ids in a database.'''\n",
    "notes.md": "# Notes\n\nThe house is painted green.\n",
}

pytestmark = pytest.mark.anyio


def no_other_model(_setting):
    raise AssertionError("nobody changes the model here")


@asynccontextmanager
async def program(folder, model, embedding, models):
    paths = Paths.of({f"XDG_{name}_HOME": str(folder / name) for name in ("CONFIG", "DATA", "STATE", "CACHE")})
    paths.prepare()
    if not paths.models.exists():
        paths.models.symlink_to(models)
    settings = Settings(model=ModelSettings(path=str(model), threads=1), embedding=EmbeddingSettings(**embedding))
    made = bootstrap.build(settings, paths, host_of(settings, paths), exchange=no_other_model)
    made.turned = told_turns(made.meaning.filling)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


@pytest.fixture
def code(tmp_path):
    folder = tmp_path / "demo"
    folder.mkdir()
    for name, text in FILES.items():
        (folder / name).write_text(text)
    return folder


async def load(made, code):
    return [event async for event in made.load(OWNER, LoadBody(path=str(code), watch=False))]


async def embedded(made, more_than=0):
    """Waits until all of the codex has vectors, of more texts than so many; what its report says of them."""
    filling = made.meaning.filling
    await made.turned.until(lambda: (now := filling.report("demo")) and now.embedded == now.texts > more_than)
    return filling.report("demo")


async def found(made, query):
    report = await made.search(OWNER, query, "demo", 10, False, "")
    notices = tuple(notice for notice in report.notices if "not followed" not in notice)
    return report.model_copy(update={"notices": notices})


async def test_what_shares_no_word_but_is_near_is_found_once_it_is_embedded(tmp_path, quoter_model, models, code):
    async with program(tmp_path / "home", quoter_model, {"model": "builtin:words"}, models) as made:
        await load(made, code)
        assert (await embedded(made)).fault == ""
        report = await found(made, "connecting sockets")
        assert report.hits[0].path == "net.py"
        assert report.hits[0].scores["vector"] > 0
        assert report.notices == ()
        status = (await made.status(OWNER)).embedding
        assert (status.model, status.dimensions, status.fault) == ("builtin:words", 256, "")


async def test_memories_have_vectors_of_their_own_and_what_is_near_a_question_is_known(tmp_path, quoter_model, models):
    async with program(tmp_path / "home", quoter_model, {"model": "builtin:words"}, models) as made:
        for text in (*FILES.values(), "Bread is baked at six.", "The violin hangs on the wall."):
            await made.records.add_memory(OWNER, MemoryBody(kind="fact", text=text, codex="none"))
        memories = made.records.learned
        assert await asyncio.to_thread(memories.meaning.fill, OWNER.uid) == 5
        (near,) = await asyncio.to_thread(memories.meaning.near, OWNER.uid, "connecting sockets")
        assert "Connects to a socket" in memories.get(OWNER.uid, near).text
        assert memories.meaning.fault == ""
        made.meaning.rest("games are played")
        assert await asyncio.to_thread(memories.meaning.near, OWNER.uid, "painting houses") == {}
        assert "games are played" in memories.meaning.fault


async def test_what_no_word_finds_and_is_near_to_nothing_is_not_found(tmp_path, quoter_model, models, code):
    async with program(tmp_path / "home", quoter_model, {"model": "builtin:words"}, models) as made:
        await load(made, code)
        await embedded(made)
        near = await found(made, "socketed")  # no word of the code, and pieces of one
        assert near.hits[0].path == "net.py"
        far = await found(made, "Kirschmarmelade")
        assert far.hits == ()
        assert "hardly nearer to anything here" in far.notices[0]


async def test_without_a_model_search_goes_by_words_and_nothing_is_said_of_it(tmp_path, quoter_model, models, code):
    async with program(tmp_path / "home", quoter_model, {}, models) as made:
        await load(made, code)
        report = await found(made, "socket")
        assert [hit.path for hit in report.hits] == ["net.py"]
        assert "vector" not in report.hits[0].scores
        assert report.notices == ()
        assert (await made.status(OWNER)).embedding.model == ""
        assert (await made.codices(OWNER))[0].embedding is None


async def test_vectors_outlast_a_restart_and_an_edit_embeds_what_is_new(tmp_path, quoter_model, models, code):
    async with program(tmp_path / "home", quoter_model, {"model": "builtin:words"}, models) as made:
        await load(made, code)
        before = await embedded(made)
    (code / "paint.py").write_text("def paint(house):\n    house.colour = 'green'\n")
    async with program(tmp_path / "home", quoter_model, {"model": "builtin:words"}, models) as made:
        assert await embedded(made) == before
        await load(made, code)
        await embedded(made, more_than=before.texts)
        assert (await found(made, "painted houses")).hits[0].path in ("paint.py", "notes.md")


async def test_a_model_that_does_not_embed_is_told_and_search_goes_by_words(tmp_path, quoter_model, models, code):
    async with program(tmp_path / "home", quoter_model, {"model": str(quoter_model)}, models) as made:
        await load(made, code)
        assert [hit.path for hit in (await found(made, "socket")).hits] == ["net.py"]
        assert "writes text" in (await made.status(OWNER)).embedding.fault


async def test_vectors_of_a_dropped_codex_are_gone(tmp_path, quoter_model, models, code):
    async with program(tmp_path / "home", quoter_model, {"model": "builtin:words"}, models) as made:
        await load(made, code)
        await embedded(made)
        assert made.meaning.filling.vectors.codices() == {"demo"}
        await made.drop(OWNER, "demo")
        assert made.meaning.filling.vectors.codices() == frozenset()


async def test_a_models_file_that_disappears_takes_search_by_meaning_away_and_nothing_else(
    tmp_path, quoter_model, models, code
):
    model = tmp_path / "embedding.gguf"
    async with program(tmp_path / "home", quoter_model, {}, models):
        source = next(models.glob("words-*.gguf"))
    shutil.copy(source, model)
    async with program(tmp_path / "home", quoter_model, {"model": str(model)}, models) as made:
        await load(made, code)
        await embedded(made)
        model.unlink()
        os.kill(made.client.pid, signal.SIGKILL)  # the next child loads its models anew
        await next_child(made.client)
        report = await found(made, "socket")
        assert report.hits[0].path == "net.py"
        assert "searched by words and names only" in report.notices[0]
        assert "cannot load" in report.notices[0]


async def test_texts_of_a_client_are_embedded_by_the_same_model(tmp_path, quoter_model, models):
    async with program(tmp_path / "home", quoter_model, {"model": "builtin:words", "window": 20}, models) as made:
        answer = await made.embed(["one text", "word " * 100])
        assert (answer.model, answer.dimensions, len(answer.vectors)) == ("builtin:words", 256, 2 * 256 * 4)
        assert answer.cut[0] == 0 < answer.cut[1]


async def test_without_a_model_embedding_is_answered_with_the_setting_that_is_missing(tmp_path, quoter_model, models):
    async with program(tmp_path / "home", quoter_model, {}, models) as made:
        with pytest.raises(NotFound, match="no embedding model is configured"):
            await made.embed(["one text"])
