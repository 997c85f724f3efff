"""Downloads from a hub on this machine: redirects, ranges, sums, and what a broken line leaves behind."""

import json

import pytest
from support.hub import BODY, SUM, serving
from support.wire_shapes import unlike

from orchestrator.wire.printed import ModelDownloaded


@pytest.fixture
def hub():
    with serving() as running:
        yield running


NAME = "hf:owner/repo/small.gguf"


@pytest.fixture
def get(lore, folder, hub):
    def run(source=NAME, *options, **variables):
        places = {"HF_ENDPOINT": hub[1], "XDG_CACHE_HOME": str(folder), "no_proxy": "*"}
        return lore("model", "get", source, *options, **places, **variables)

    return run


@pytest.fixture
def target(folder):
    return folder / "lorekeep" / "models" / "owner--repo" / "small.gguf"


def test_a_model_is_fetched_whole_and_its_sum_is_checked(get, target):
    done = get(NAME, "--json")
    whole = {"path": str(target), "bytes": len(BODY), "sha256": SUM, "checked": True, "files": [str(target)]}
    assert json.loads(done.stdout) == whole
    assert unlike(ModelDownloaded, whole) == []
    assert target.read_bytes() == BODY


def test_a_broken_download_is_kept_and_goes_on_where_it_broke_off(get, hub, target):
    hub[0].cut = 1000
    broken = get()
    assert broken.returncode == 1
    assert f"{len(BODY) - 1000:,} bytes are kept" in broken.stderr
    assert not target.exists()
    assert get().returncode == 0
    assert target.read_bytes() == BODY
    assert hub[0].ranges == [None, f"bytes={len(BODY) - 1000}-"]


def test_what_was_whole_when_it_broke_off_is_not_fetched_again(get, target):
    target.parent.mkdir(parents=True)
    target.with_name("small.gguf.part").write_bytes(BODY)
    assert get().returncode == 0
    assert target.read_bytes() == BODY


def test_another_sum_than_the_hubs_is_refused_and_nothing_is_left(get, hub, target):
    hub[0].sum = "0" * 64
    done = get()
    assert (done.returncode, "damaged" in done.stderr) == (1, True)
    assert list(target.parent.iterdir()) == []


def test_what_came_whole_and_is_no_gguf_is_called_so(get, hub):
    hub[0].body, hub[0].sum = b"<html>please log in</html>" * 10, ""
    done = get()
    assert (done.returncode, "no whole model" in done.stderr, "is no GGUF" in done.stderr) == (1, True, True)
    assert "lore model drop small" in done.stderr


def test_all_parts_of_a_model_are_fetched_whichever_is_named_and_those_at_hand_are_not(get, hub, target):
    hub[0].files = tuple(f"big-{number:05d}-of-00003.gguf" for number in (1, 2, 3))
    target.parent.mkdir(parents=True)
    (target.parent / hub[0].files[1]).write_bytes(BODY)
    done = json.loads(get("hf:owner/repo/big-00002-of-00003.gguf", "--json").stdout)
    assert done["files"] == [str(target.parent / name) for name in hub[0].files]
    assert len(hub[0].ranges) == 2


@pytest.mark.parametrize(
    ("source", "status", "words"),
    [
        ("hf:owner/repo/none.gguf", 5, "does not exist"),
        ("hf:owner/repo/gated.gguf", 6, "download it in a browser"),
        ("hf:owner/repo", 2, "hf:OWNER/REPO/FILE.gguf"),
        ("hf:owner/repo/../x.gguf", 2, "hf:OWNER/REPO/FILE.gguf"),
        ("https://x/y.gguf", 2, "hf:OWNER/REPO/FILE.gguf"),
        ("qwen3-4b", 2, "lore up --model NAME"),
    ],
)
def test_what_cannot_be_fetched_says_why(get, source, status, words):
    done = get(source)
    assert (done.returncode, words in done.stderr) == (status, True)


def test_a_token_goes_to_the_hub_and_never_to_the_host_that_it_redirects_to(get, hub):
    hub[0].store = hub[1].replace("127.0.0.1", "localhost")
    assert get("hf:moved/repo/small.gguf", HF_TOKEN=" hf_abc\n").returncode == 0
    token = "Bearer hf_abc"
    assert hub[0].tokens == [
        ("/moved/repo/resolve/main", token),
        ("/owner/repo/resolve/main", token),
        ("/store", None),
    ]


def test_without_a_token_none_is_sent(get, hub):
    assert get().returncode == 0
    assert {token for _, token in hub[0].tokens} == {None}


def test_a_gated_model_says_how_to_be_let_in(get):
    assert "set HF_TOKEN" in get("hf:owner/repo/gated.gguf").stderr
    assert "agree to its terms" in get("hf:owner/repo/gated.gguf", HF_TOKEN="hf_abc").stderr


def test_what_cannot_be_a_token_is_refused_and_not_shown(get, hub):
    done = get(NAME, HF_TOKEN="two\nlines")
    assert (done.returncode, "HF_TOKEN is no token" in done.stderr, "lines" in done.stderr) == (2, True, False)
    assert hub[0].tokens == []


def test_a_file_that_is_there_is_left_alone(get, target):
    target.parent.mkdir(parents=True)
    target.write_bytes(b"mine")
    done = get()
    assert (done.returncode, "is there already" in done.stderr) == (1, True)
    assert target.read_bytes() == b"mine"


def test_without_a_network_it_says_what_to_do(lore, folder):
    done = lore("model", "get", NAME, HF_ENDPOINT="http://127.0.0.1:9", XDG_CACHE_HOME=str(folder), no_proxy="*")
    assert done.returncode == 1
    assert "cannot be reached" in done.stderr
    assert "lore model use FILE.gguf" in done.stderr
    assert "Traceback" not in done.stderr
