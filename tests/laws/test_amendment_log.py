"""Laws of the log: it only grows, it leads from the base to the disk, and a reader of it knows every file's bytes."""

from hypothesis import given
from hypothesis import strategies as st

from codex.documents import Document
from codex.following.amendments import Amendment, AmendmentWriter, ChangeKind, effective, new_entries

DIGESTS = st.dictionaries(st.sampled_from("abcd"), st.sampled_from("123"), max_size=4)
TELLER = AmendmentWriter(
    read=lambda path, digest: Document(path, f"text of {digest}", digest, 9),
    count=len,
    changed_definitions=lambda old, new: None,
    whole_file_tokens=5,
)


def as_read(base: dict[str, str], log: list[Amendment]) -> dict[str, str]:
    """What someone knows who has the base's texts and reads the log from its beginning."""
    now = {path: f"text of {digest}" for path, digest in base.items()}
    for number, entry in enumerate(log, start=1):
        assert entry.number == number
        if entry.kind is ChangeKind.REMOVED:
            del now[entry.path]
        elif entry.kind is ChangeKind.RESTORED:
            now[entry.path] = f"text of {base[entry.path]}"
        elif entry.kind is ChangeKind.MOVED:
            assert entry.source is not None
            now[entry.path] = now[entry.source]
        else:
            now[entry.path] = entry.text
    return now


@given(DIGESTS, st.lists(DIGESTS, max_size=5))
def test_the_log_only_grows_and_always_leads_to_the_disk(base: dict[str, str], disks: list[dict[str, str]]) -> None:
    log: list[Amendment] = []
    for disk in disks:
        log += new_entries(base, tuple(log), disk, TELLER)
        assert effective(base, log) == disk
        assert as_read(base, log) == {path: f"text of {digest}" for path, digest in disk.items()}
        assert new_entries(base, tuple(log), disk, TELLER) == ()
