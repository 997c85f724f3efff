"""A NUL character in what names a path, a revision or a pattern is the asker's fault, and said so."""

import pytest

from codex.errors import SourceError
from codex.trees.sources import LoadSpec, resolve

NUL = "a\0b"


@pytest.mark.parametrize(
    ("method", "route", "body", "field"),
    [
        ("POST", "/v1/codices", {"path": "/" + NUL}, "path"),
        ("POST", "/v1/codices", {"path": "/x", "revision": NUL}, "revision"),
        ("POST", "/v1/codices", {"path": "/x", "name": NUL}, "name"),
        ("POST", "/v1/codices", {"path": "/x", "more": ["/y", "/" + NUL]}, "more.1"),
        ("POST", "/v1/codices", {"path": "/x", "include": [NUL]}, "include.0"),
        ("POST", "/v1/codices", {"path": "/x", "exclude": [NUL]}, "exclude.0"),
        ("POST", "/v1/codices", {"path": "/x", "tier": NUL}, "tier"),
        ("POST", "/v1/search", {"query": "x", "codex": NUL}, "codex"),
        ("POST", "/v1/search", {"query": "x", "cwd": NUL}, "cwd"),
        ("PUT", "/v1/model", {"model": NUL}, "model"),
        ("PUT", "/v1/model", {"model": "~" + NUL}, "model"),
        ("PATCH", "/v1/sessions/mine", {"name": NUL}, "name"),
    ],
)
def test_a_nul_in_a_name_is_refused_with_its_field(http, method, route, body, field):
    answer = http.request(method, route, json=body)
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_request")
    assert answer.json()["error"]["message"].startswith(f"{field}: holds a NUL character")


@pytest.mark.parametrize(
    ("lore", "field"),
    [
        ({"codex": NUL}, "lore.codex"),
        ({"session": NUL}, "lore.session"),
        ({"identity": NUL}, "lore.identity"),
        ({"client": {"cwd": NUL}}, "lore.client.cwd"),
        ({"client": {"file": NUL}}, "lore.client.file"),
    ],
)
def test_a_nul_in_what_a_question_names_is_refused_with_its_field(http, lore, field):
    body = {"messages": [{"role": "user", "content": "hello"}], "lore": lore}
    answer = http.post("/v1/plan", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"].startswith(f"{field}: holds a NUL character")


@pytest.mark.parametrize("wanted", [LoadSpec(("/x" + NUL,)), LoadSpec(("/tmp",), revision=NUL)])
def test_a_source_with_a_nul_is_refused_before_anything_looks_for_it(tmp_path, wanted):
    with pytest.raises(SourceError, match="NUL"):
        resolve(wanted, tmp_path)
