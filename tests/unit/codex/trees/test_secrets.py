"""Tokens here are put together at run time, so that no scanner finds one in this file."""

import base64
import json
import random
import string
from concurrent.futures import ThreadPoolExecutor

import pytest

from codex.ingest import inspect
from codex.settings import LibrarySettings, SecretSettings
from codex.trees.ignore import SkipReason
from codex.trees.secrets import Finding, find_secret

_DRAWN = random.Random(5)
HEX = "0123456789abcdef"
UPPER = string.ascii_uppercase + string.digits
LOWER = string.ascii_lowercase + string.digits
BASE64 = string.ascii_letters + string.digits + "+/"


def drawn(length: int, signs: str = string.ascii_letters + string.digits) -> str:
    return "".join(_DRAWN.choice(signs) for _ in range(length))


def lines_of_base64(count: int) -> str:
    return "\n".join(drawn(64, BASE64) for _ in range(count))


def web_token(payload: dict[str, object]) -> str:
    parts = (json.dumps(part, separators=(",", ":")).encode() for part in ({"alg": "HS256", "typ": "JWT"}, payload))
    return ".".join([*(base64.urlsafe_b64encode(part).decode().rstrip("=") for part in parts), drawn(43)])


PUTTY = "PuTTY-User-Key-" + "File-3: ssh-ed25519\nEncryption: none\nComment: me@host\nPublic-Lines: 2\n"
BEGIN, END = "-----BEGIN ", "-----END "

OF_THE_CATALOG = {
    "gitlab pat": "glpat-" + drawn(20),
    "gitlab pat longer": "glpat-" + drawn(27),
    "gitlab pat routable": "glpat-" + drawn(27) + ".01." + drawn(9, LOWER),
    "gitlab job": "glcbt-" + drawn(5) + "_" + drawn(20),
    "gitlab deploy": "gldt-" + drawn(20),
    "gitlab runner": "glrt-" + drawn(20),
    "slack app": "xapp-1-A" + drawn(10, UPPER) + "-" + drawn(13, "123456789") + "-" + drawn(64, HEX),
    "slack bot": "xoxb-" + drawn(12, "123456789") + "-" + drawn(13, "123456789") + "-" + drawn(24),
    "slack hook": "https://hooks.slack.com/services/" + f"T{drawn(8, UPPER)}/B{drawn(10, UPPER)}/" + drawn(24),
    "docker": "dckr_pat_" + drawn(27),
    "vault": "hvs." + drawn(90),
    "grafana": "glsa_" + drawn(32) + "_" + drawn(8, HEX),
    "databricks": "dapi" + drawn(32, HEX),
    "atlassian": "ATATT3xFfGF0" + drawn(176) + "=" + drawn(8, "0123456789ABCDEF"),
    "web token": web_token({"sub": "u-8123", "name": "Kai Roth", "iat": 1716239022}),
    "linear": "lin_api_" + drawn(40),
    "groq": "gsk_" + drawn(52),
    "rubygems": "rubygems_" + drawn(48, HEX),
    "notion": "ntn_" + drawn(11, string.digits) + drawn(35),
    "terraform": drawn(14) + ".atlasv1." + drawn(64),
    "telegram": "TELEGRAM_BOT_TOKEN=" + drawn(10, "123456789") + ":AA" + drawn(33),
    "github": "ghp_" + drawn(36),
    "github fine-grained": "github_pat_" + drawn(22) + "_" + drawn(59),
    "stripe": "sk_live_" + drawn(24),
    "google": "AIza" + drawn(35),
    "openai": "sk-proj-" + drawn(74) + "T3Blbk" + "FJ" + drawn(74),
    "anthropic": "sk-ant-api03-" + drawn(93) + "AA",
    "hugging face": "hf_" + drawn(34, string.ascii_letters),
    "pypi": "pypi-AgEIcHlwaS5vcmc" + drawn(80),
    "shopify": "shpat_" + drawn(32, HEX),
    "age": "AGE-SECRET-KEY-1" + drawn(58, "QPZRY9X8GF2TVDW0S3JN54KHCE6MUA7L"),
    "openssh": BEGIN + "OPENSSH PRIVATE KEY-----\n" + lines_of_base64(5) + "\n" + END + "OPENSSH PRIVATE KEY-----",
}
OUR_OWN = {
    "private key": BEGIN + "RSA PRIVATE KEY-----\n" + lines_of_base64(2),
    "private key in JSON": 'KEY = "' + BEGIN + "PRIVATE KEY-----\\n" + drawn(64, BASE64) + '"',
    "private key with a password": BEGIN
    + "RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\nDEK-Info: AES,7F\n\n"
    + lines_of_base64(1),
    "pgp": BEGIN + "PGP PRIVATE KEY BLOCK-----\nVersion: 1\nComment: a b\n\n" + lines_of_base64(1),
    "putty private key": PUTTY + lines_of_base64(2) + "\nPrivate-Lines: 1\n" + drawn(44, BASE64),
    "aws access key": "aws = AKIA" + drawn(16, string.ascii_uppercase + "234567"),
    "aws secret access key": "AWS_SECRET_" + "ACCESS_KEY=" + drawn(40),
    "aws secret access key in code": "aws_secret_" + f'access_key = "{drawn(40)}"',
    "vault token": "hvs." + drawn(24),
    "npm token": "npm_" + drawn(36),
    "sendgrid key": "SG." + drawn(22) + "." + drawn(43),
    "digitalocean token": "dop_v1_" + drawn(64, HEX),
    "azure storage key": "AccountKey=" + drawn(86) + "==",
    "azure ad client secret": f'secret = "{drawn(3)}8Q~{drawn(34)}"',
    "crates io token": "cio" + drawn(32),
    "nuget key": "oy2" + drawn(43, LOWER),
    "notion secret": "secret_" + drawn(43),
    "bitbucket token": "ATBB" + drawn(32),
    "new relic key": "NRAK-" + drawn(27, UPPER),
    "sentry token": "sntryu_" + drawn(64, HEX),
    "planetscale token": "pscale_tkn_" + drawn(43),
    "tailscale key": "tskey-auth-" + drawn(12) + "-" + drawn(32),
    "postman key": "PMAK-" + drawn(24, HEX) + "-" + drawn(34, HEX),
    "openrouter key": "sk-or-v1-" + drawn(64, HEX),
    "xai key": "xai-" + drawn(80),
    "discord bot token": "MT" + drawn(24) + "." + drawn(6) + "." + drawn(30),
    "password in address": "DATABASE_URL=postgres://app:" + drawn(18) + "9aZ@db.acme.io:5432/app",
    "password in address of git": "https://deploy:" + drawn(18) + "9aZ@git.acme.io/x.git",
}
HARMLESS = {
    "a public key": BEGIN + "PUBLIC KEY-----\n" + lines_of_base64(1),
    "code that reads keys": 'if line.startswith("' + BEGIN + 'RSA PRIVATE KEY-----"):\n    return parse(line)',
    "code that reads PuTTY's": 'if not line.startswith("PuTTY-User-Key-' + 'File-"):\n    raise ValueError(line)',
    "an example key": "AKIAIOSFODNN7EXAMPLE",
    "an example secret": "AWS_SECRET_" + "ACCESS_KEY=wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    "the secret from the environment": 'aws_secret_access_key = os.environ["AWS_SECRET_ACCESS_KEY"]',
    "x": "ghp_" + "x" * 36,
    "a short name": "prefix_ghp_short the_AIza_prefix",
    "a function": "hf_hub_download(repo_id, filename)",
    "a digest": "sha256:" + "a" * 64 + " " + drawn(64, HEX),
    "the sample of a web token": web_token({"sub": "1234567890", "name": "John Doe", "iat": 1516239022}),
    "addresses of examples": "postgresql://scott:tiger@localhost/test https://user:password@example.com mysql://u:p@h/d",
    "addresses that are filled in": "redis://:${REDIS_PASSWORD}@cache:6379 https://x:{token_Of_9}@host postgres://u:%(Pw)9s@h",
    "an address in a manual": "postgresql+pg8000://dbuser:kX%40jj5%2Fg@pghost10/appdb",
    "an integrity": "integrity sha512-" + drawn(86, BASE64) + "==",
    "a name of a secret": 'secret_manager_client_for_project_and_location = secret_store["a"]',
    "an address of a person": "ssh://git@github.com:22/a/b.git git@github.com:acme/x.git",
}


@pytest.mark.parametrize("name", OF_THE_CATALOG)
def test_a_secret_of_a_documented_format_is_found_with_its_line(name: str) -> None:
    found = find_secret(f"one\ntwo {OF_THE_CATALOG[name]}\n".encode())
    assert found is not None and found.line == 2


@pytest.mark.parametrize("name", OUR_OWN)
def test_a_secret_that_the_catalog_does_not_know_is_found_with_its_line(name: str) -> None:
    found = find_secret(f"one\ntwo\n{OUR_OWN[name]}\n".encode())
    assert found is not None and (found.line == 3 or "\n" in OUR_OWN[name])


@pytest.mark.parametrize("name", HARMLESS)
def test_what_only_looks_like_a_secret_is_left_alone(name: str) -> None:
    assert find_secret(HARMLESS[name].encode()) is None


def test_the_first_of_several_is_named() -> None:
    text = f"a\n{OUR_OWN['npm token']}\nb\n{OF_THE_CATALOG['github']}\n"
    assert find_secret(text.encode()) == Finding("npm token", 2)


def test_a_file_with_a_secret_is_left_out_with_its_line_and_kind() -> None:
    raw = f"a = 1\nkey = {OUR_OWN['nuget key']}\n".encode()
    assert inspect(raw, LibrarySettings()) == (
        SkipReason.SECRET_CONTENT,
        "2: left out, it holds what looks like a nuget key",
    )


@pytest.mark.parametrize("named", [True, False])
def test_a_file_that_is_loaded_as_asked_though_it_holds_a_secret_is_told_with_its_line_and_kind(named: bool) -> None:
    raw = f"a = 1\nkey = {OUR_OWN['nuget key']}\n".encode()
    settings = LibrarySettings(secrets=SecretSettings(load_secret_contents=not named))
    assert inspect(raw, settings, named=named) == (None, "2: loaded as asked, but it holds what looks like a nuget key")


def test_several_threads_look_at_files_at_once() -> None:
    files = [f"x = {number}\n{OF_THE_CATALOG['docker'] if number % 3 == 0 else ''}\n".encode() for number in range(60)]
    with ThreadPoolExecutor(4) as readers:
        found = list(readers.map(find_secret, files))
    assert [one is not None for one in found] == [number % 3 == 0 for number in range(60)]
