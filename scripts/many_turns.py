"""Ten thousand turns in the file of traces without asking ten thousand questions: the newest one, many times.

Knows the tables of `traces.sqlite3`. Texts are counted and weighed as the store does it, so that deleting works.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

DIGEST = 32  # bytes
COPIED = """
WITH RECURSIVE up(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM up WHERE n < :number)
INSERT INTO traces (id, uid, codex, session, title, created, size, said, prompt, tokens, cached, strategy)
SELECT
    printf('%032x', n), uid, codex, session, title || printf(' #%05d', n), created, size, said, prompt,
    tokens, cached, strategy
FROM up, (SELECT * FROM traces ORDER BY number DESC LIMIT 1)
"""


def many_turns(database: Path, number: int) -> None:
    """The titles end in #00001 and so on, the last one the newest."""
    with closing(sqlite3.connect(database, timeout=60)) as connection, connection:
        prompt, size = connection.execute("SELECT prompt, size FROM traces ORDER BY number DESC LIMIT 1").fetchone()
        connection.execute(COPIED, {"number": number})
        digests = {prompt[at : at + DIGEST] for at in range(0, len(prompt), DIGEST)}
        connection.executemany("UPDATE texts SET uses = uses + ? WHERE digest = ?", [(number, one) for one in digests])
        connection.execute("UPDATE held SET bytes = bytes + ?", (number * size,))
