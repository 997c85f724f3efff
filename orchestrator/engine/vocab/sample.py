"""Text that shows where two tokenizers differ: made here, the same on every machine."""

import itertools

_WORDS = (
    "import os\nfrom typing import Any\n\n\nclass LRUCache2(dict[str, Any]):\n\tdef __getitem__(self, key: str) -> Any:"
    "\n        return super().__getitem__(key)  # it's O(1), isn't it? they'll say I'd've DON'T CAN'T we'RE\n"
    "for (int i = 0; i < 1234567; ++i) { a[i] += 0x1F & ~b; }  // 3.14159e-10\r\n\r\n   \r\n"
    "<div class=\"x\">&amp;</div> {{ jinja }} {% if x %} $HOME /usr/lib/x86_64 foo.bar?baz=1&q='2'#frag\n"
    "SELECT * FROM t WHERE x != 'it''s';;; ---- ==== #### !!!??? ... :::: ((([[[{{{}}}]]])))\n"
    "The quick brown fox; naïve café façade, Straße, ÆØÅ, İstanbul, ĳsvrij, Ωμέγα, Привет мир, שלום, مرحبا بالعالم\n"
    "日本語のテキスト 中文字符，标点。 한국어 문장 ไทย हिन्दी বাংলা ᏣᎳᎩ\n"
    "½ ² ① Ⅷ ٣ ৪ ％ € £ ¥ → ⇒ ∀x∈ℝ ≤ ≥ ≠ ± × ÷ • … — – “q” ‘s’\n"
    "😀👩‍👩‍👧‍👦🏳️‍🌈👍🏽🇩🇪 e\u0301 a\u0308 \u00a0nbsp\u2003em\u3000ideographic\u200b"
    "zero\ufeffbom \u2028ls\u2029ps\x0bvt\x0cff\x85nel\n"
)
_SPACES = ("", " ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", " \n", "\n  ", "\t\t ", "  \t", "\r", "\n \n\n   ")
_BESIDE = ("", "a", "Z", "1", "1234", ".", "'s", "'S", "-", "é", "中", "😀", "_", "\u0301", "½", "#")


def sample() -> str:
    """About 6,000 characters: code and prose of many scripts, and every kind of white space beside every kind of sign."""
    runs = "".join(left + space + right for left, right, space in itertools.product(_BESIDE, _BESIDE, _SPACES))
    return _WORDS + runs
