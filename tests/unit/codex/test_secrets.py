"""Tokens here are put together at run time, so that no scanner finds one in this file."""

import pytest

from codex.secrets import Finding, find_secret

BODY = "q7RtY2uPz9LmK4vXc8BnD5wSf3GhJ6aE1oTiVyWxQzRkMpNdUb0CsHgFjLlZeAiO9P8T7Y6U5R4E3W2Q1M"


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("-----BEGIN " + "RSA PRIVATE KEY-----\n" + BODY[:64] + "\n" + BODY[:64], "private key"),
        ('KEY = "-----BEGIN ' + "PRIVATE KEY-----\\n" + BODY[:64] + '"', "private key"),
        ("-----BEGIN " + "OPENSSH PRIVATE KEY-----\n" + BODY[:70], "private key"),
        (
            "-----BEGIN " + "RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,7F\n\n" + BODY[:64],
            "private key",
        ),
        ("-----BEGIN " + "PGP PRIVATE KEY BLOCK-----\nVersion: 1\nComment: a b\n\n" + BODY[:64], "private key"),
        ("sk-proj-" + BODY[:74] + "T3Blbk" + "FJ" + BODY[:74], "OpenAI key"),
        ("aws = AKIA" + "QZ7TR2VXKLM3NB4W", "AWS access key"),
        ("token: ghp_" + BODY[:36], "GitHub token"),
        ("github_pat_" + BODY[:22] + "_" + BODY[:59], "GitHub token"),
        ("glpat-" + BODY[:20], "GitLab token"),
        ("xoxb-" + "284739105562-" + BODY[:24], "Slack token"),
        ("sk_live_" + BODY[:24], "Stripe key"),
        ("AIza" + BODY[:35], "Google API key"),
        ("hf_" + "QwErTyUiOpAsDfGhJkLzXcVbNmQwErTyUi", "Hugging Face token"),
        ("npm_" + BODY[:36], "npm token"),
        ("pypi-AgE" + BODY[:80], "PyPI token"),
        ("sk-ant-api03-" + BODY + BODY[:12], "Anthropic key"),
        ("AccountKey=" + (BODY * 2)[:86] + "==", "Azure storage key"),
    ],
)
def test_a_secret_is_found_with_its_line_and_kind(text: str, kind: str) -> None:
    assert find_secret(f"one\ntwo {text}\n".encode()) == Finding(kind, 2)


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN PUBLIC KEY-----\n" + BODY[:64],
        'if line.startswith("-----BEGIN RSA PRIVATE KEY-----"):\n    return parse(line)',
        "AKIAIOSFODNN7EXAMPLE",
        "ghp_" + "x" * 36,
        "prefix_ghp_short",
        "the_AIza_prefix",
        "hf_hub_download(repo_id, filename)",
        "sha256:" + "a" * 64,
    ],
)
def test_what_only_looks_like_a_secret_is_left_alone(text: str) -> None:
    assert find_secret(text.encode()) is None
