"""Finds private keys and access tokens in a file's bytes, so that they do not end up in a prompt.

A short list of formats that their issuers document and that hardly anything else looks like: a fixed prefix or
header and a body of fixed alphabet and length. There is no rule for passwords or high entropy: those find more test
data than secrets. Which kinds are worth a rule was taken from the public list of gitleaks; the expressions are our own.
(The known library for this, detect-secrets, has had no release since May 2024.)
"""

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What kind of secret stands at which line (from 1). The secret itself is never carried along."""

    kind: str
    line: int


@dataclass(frozen=True, slots=True)
class _Rule:
    kind: str
    marks: tuple[bytes, ...]  # plain substrings, one of which must be there before the expression is tried
    expression: re.Pattern[bytes]


def _rule(kind: str, marks: tuple[bytes, ...], expression: bytes) -> _Rule:
    return _Rule(kind, marks, re.compile(expression))


_WORD = rb"(?<![A-Za-z0-9_])"
_END = rb"(?![A-Za-z0-9_])"
_GAP = rb"(?:[\s\"'+,]|\\n|\\r)*"
_RULES = (
    _rule(
        "private key",
        (b"PRIVATE KEY",),
        rb"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----"
        # A few headers of some length: without bounds a file of nothing but such beginnings takes its square.
        + _GAP
        + rb"(?:[A-Za-z-]{1,40}: [^\r\n]{0,400}[\r\n]"
        + _GAP
        + rb"){0,16}[A-Za-z0-9+/=]{48}",
    ),
    _rule("AWS access key", (b"AKIA", b"ASIA"), _WORD + rb"(?:AKIA|ASIA)[A-Z2-7]{16}" + _END),
    _rule(
        "GitHub token",
        (b"ghp_", b"gho_", b"ghu_", b"ghs_", b"ghr_", b"github_pat_"),
        _WORD + rb"(?:gh[pousr]_[A-Za-z0-9]{36}|github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59})" + _END,
    ),
    _rule("GitLab token", (b"glpat-", b"gldt-", b"glrt-"), _WORD + rb"gl(?:pat|dt|rt)-[A-Za-z0-9_-]{20}" + _END),
    _rule("Slack token", (b"xox",), _WORD + rb"xox[abeoprs]-[0-9]{10,13}-[A-Za-z0-9-]{20,}"),
    _rule(
        "Slack webhook",
        (b"hooks.slack.com/services/",),
        rb"hooks\.slack\.com/services/T[A-Z0-9]{8,12}/B[A-Z0-9]{8,12}/[A-Za-z0-9]{24}" + _END,
    ),
    _rule("Stripe key", (b"k_live_",), _WORD + rb"[sr]k_live_[A-Za-z0-9]{24,}"),
    _rule("Google API key", (b"AIza",), _WORD + rb"AIza[A-Za-z0-9_-]{35}" + _END),
    _rule("OpenAI key", (b"T3BlbkFJ",), _WORD + rb"sk-[A-Za-z0-9_-]{0,160}T3BlbkFJ[A-Za-z0-9_-]{20,}"),
    _rule("Anthropic key", (b"sk-ant-",), _WORD + rb"sk-ant-[a-z0-9]+-[A-Za-z0-9_-]{80,}"),
    _rule("Hugging Face token", (b"hf_",), _WORD + rb"hf_[A-Za-z]{34}" + _END),
    _rule("npm token", (b"npm_",), _WORD + rb"npm_[A-Za-z0-9]{36}" + _END),
    _rule("PyPI token", (b"pypi-AgE",), _WORD + rb"pypi-AgE[A-Za-z0-9_-]{70,}"),
    _rule("SendGrid key", (b"SG.",), _WORD + rb"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}" + _END),
    _rule("DigitalOcean token", (b"_v1_",), _WORD + rb"do[opr]_v1_[a-f0-9]{64}" + _END),
    _rule("Shopify token", (b"shp",), _WORD + rb"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}" + _END),
    _rule("Azure storage key", (b"AccountKey=",), rb"AccountKey=[A-Za-z0-9+/]{86}=="),
    _rule("age secret key", (b"AGE-SECRET-KEY-1",), _WORD + rb"AGE-SECRET-KEY-1[02-9AC-HJ-NP-Z]{58}" + _END),
)
_EXAMPLE = re.compile(rb"EXAMPLE|example|XXXX|xxxx|0000000000|1234567890|abcdefghij", re.ASCII)


def find_secret(raw: bytes) -> Finding | None:
    """The first secret in a file, or None. Values that say themselves that they are examples do not count."""
    for rule in _RULES:
        if not any(mark in raw for mark in rule.marks):
            continue
        for match in rule.expression.finditer(raw):
            if not _EXAMPLE.search(match[0]):
                return Finding(rule.kind, raw.count(b"\n", 0, match.start()) + 1)
    return None
