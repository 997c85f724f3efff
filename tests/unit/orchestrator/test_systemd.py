"""systemd accepts the units without a word, and finds them closed."""

import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from orchestrator.settings import Paths
from orchestrator.systemd import (
    Notifier,
    Unit,
    UnitPlace,
    carried,
    complaint,
    install,
    place_of,
    prefill_words,
    quoted,
    service_text,
    socket_text,
    uninstall,
)

needs_systemd = pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd's tools are not here")
UNITS = [
    Unit(Path(sys.executable), user, (Path("/tmp"),), tcp, {"X": "a b%"})
    for user in (True, False)
    for tcp in (True, False)
] + [
    Unit(Path(sys.executable), encrypt=source, key_file=Path("/my keys/key.cred"))
    for source in ("credential", "keyring")
]


@pytest.fixture
def written(tmp_path):
    def write(unit):
        service, socket = tmp_path / "lorekeep.service", tmp_path / "lorekeep.socket"
        service.write_text(service_text(unit))
        socket.write_text(socket_text(user=unit.user))
        return service, socket

    return write


@needs_systemd
@pytest.mark.parametrize("unit", UNITS, ids=repr)
def test_systemd_verifies_the_units_without_a_word(written, tmp_path, unit):
    manager = ["--user"] if unit.user else ["--system"]
    command = ["systemd-analyze", *manager, "verify", *written(unit)]
    environment = {**os.environ, "XDG_RUNTIME_DIR": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")  # unknown keys are told on stderr, with status 0


def test_the_key_comes_from_systemd_or_from_the_keyring_of_its_user_where_one_is_set():
    def lines(**given):
        text = service_text(Unit(Path("/lore"), **given))
        return [line for line in text.splitlines() if line.startswith(("Keyring", "LoadCred"))]

    assert lines() == ["KeyringMode=private"]
    assert lines(encrypt="keyring") == ["KeyringMode=shared"]
    assert lines(encrypt="credential", key_file=Path("/etc/lorekeep/key.cred")) == [
        "KeyringMode=private",
        "LoadCredentialEncrypted=lorekeep.key:/etc/lorekeep/key.cred",
    ]


@needs_systemd
@pytest.mark.parametrize("unit", [unit for unit in UNITS if not unit.tcp], ids=repr)
def test_the_service_s_exposure_is_at_most_1_5(written, unit):
    service, _ = written(unit)
    command = ["systemd-analyze", "security", "--offline=yes", "--threshold=15", service]
    assert subprocess.run(command, capture_output=True, check=False).returncode == 0


def test_the_system_s_socket_is_for_the_members_of_a_group_and_no_home_is_seen_behind_it():
    text = socket_text(user=False)
    assert "ListenStream=%t/lorekeep/lore.sock\nSocketMode=0660\nSocketUser=lorekeep\nSocketGroup=lorekeep\n" in text
    assert "SocketMode=0600\nDirectoryMode=0700" in socket_text(user=True)
    service = service_text(Unit(Path("/lore"), user=False))
    for line in ("User=lorekeep", "Group=lorekeep", "ProtectHome=yes", "RuntimeDirectoryMode=0755"):
        assert f"\n{line}\n" in service


def test_the_system_s_installation_asks_for_a_user_and_a_group(tmp_path):
    account = tmp_path / "sysusers.d" / "lorekeep.conf"
    place = UnitPlace(tmp_path / "system", ("no-systemctl",), account=account, sysusers="no-sysusers")
    unit = Unit(Path("/opt/lore"), user=False)
    assert install(unit, place)[0] == f"no-sysusers is not here; later: no-sysusers {account}"
    assert account.read_text() == 'u lorekeep - "Lorekeep" /var/lib/lorekeep\n'
    uninstall(unit, place)
    assert not any(file.exists() for file in place.files)


def test_an_engine_that_the_kernel_ends_for_want_of_memory_does_not_take_the_daemon_with_it():
    assert "\nOOMPolicy=continue\n" in service_text(Unit(Path("/lore")))


def test_the_gpu_stays_visible():
    text = service_text(UNITS[0])
    assert "DeviceAllow=char-nvidia-uvm rw" in text
    assert "PrivateDevices" not in text
    assert "ProcSubset" not in text


@pytest.mark.parametrize(
    ("servers", "lines"),
    [
        (("10.0.0.7", "10.0.0.7"), ["IPAddressDeny=any", "IPAddressAllow=10.0.0.7"]),
        (("localhost",), ["IPAddressDeny=any", "IPAddressAllow=localhost"]),
        (("::1", "10.0.0.7"), ["IPAddressDeny=any", "IPAddressAllow=::1 10.0.0.7"]),
        (("gpu.example", "10.0.0.7"), []),
    ],
)
def test_servers_of_the_engine_are_spoken_to_and_by_address_no_others(servers, lines):
    text = service_text(Unit(Path("/lore"), servers=servers))
    assert [line for line in text.splitlines() if line.startswith("IPAddress")] == lines
    assert "PrivateNetwork" not in text and "AF_INET AF_INET6" in text


def test_without_tcp_there_is_no_network():
    assert "PrivateNetwork=yes" in service_text(Unit(Path("/lore"), tcp=False))
    assert "PrivateNetwork" not in service_text(Unit(Path("/lore"), tcp=True))


@pytest.mark.parametrize(
    ("path", "text"), [("/a/b", "/a/b"), ("/a b", '"/a b"'), ("/100%", "/100%%"), ('/q"q', '"/q\\"q"')]
)
def test_paths_are_quoted_as_systemd_reads_them(path, text):
    assert quoted(Path(path)) == text


def test_installing_makes_the_folders_that_systemd_will_bind_and_uninstalling_leaves_them(tmp_path):
    place = place_of({"XDG_CONFIG_HOME": str(tmp_path), "HOME": str(tmp_path)}, user=True)
    data = tmp_path / "data"
    unit = Unit(Path("/opt/lore"), writable=(data,))
    install(unit, place)
    assert f"ReadWritePaths={data}" in place.files[0].read_text()
    assert data.stat().st_mode & 0o777 == 0o700
    assert place.link.readlink() == Path("/opt/lore")
    uninstall(unit, place)
    assert [file.exists() for file in (*place.files, data)] == [False, False, True]
    assert not place.link.is_symlink()


def test_a_lore_that_is_somebody_else_s_is_left_alone(tmp_path):
    place = place_of({"HOME": str(tmp_path)}, user=True)
    place.link.parent.mkdir(parents=True)
    place.link.write_text("mine")
    unit = Unit(Path("/opt/lore"))
    complaints = install(unit, place)
    assert "something else" in complaints[0]
    uninstall(unit, place)
    assert place.link.read_text() == "mine"


def test_folders_that_only_the_shell_names_are_carried_into_the_unit(tmp_path):
    environ = {"HOME": "/h", "XDG_DATA_HOME": f"{tmp_path}/my data", "XDG_STATE_HOME": "not/absolute"}
    carries = carried(environ, Paths.of(environ), user=True)
    assert carries == {"XDG_DATA_HOME": f"{tmp_path}/my data", "KF_RULE_CACHE_DIR": "/h/.cache/lorekeep/kingfisher"}
    text = service_text(Unit(Path("/lore"), environment=carries))
    assert f'Environment="XDG_DATA_HOME={tmp_path}/my data"\n' in text
    assert carried(environ, Paths.of(environ), user=False) == {"KF_RULE_CACHE_DIR": "/var/cache/lorekeep/kingfisher"}


def test_of_what_systemctl_says_only_its_complaints_are_told():
    said = "Created symlink /a → /b.\nFailed to connect to bus: No medium found\n"
    assert complaint(said) == "Failed to connect to bus: No medium found"
    assert complaint("Removed /a.\n") == ""


@pytest.mark.parametrize(
    ("told", "words"),
    [
        ((0, 0, 0, 0.0), ""),
        ((1, 12_000, 60_000, 200.0), "computing a codex: 12,000 of 60,000 tokens (20 %), 3 min left"),
        ((2, 1, 3, 12.4), "computing 2 codices: 1 of 3 tokens (33 %), 12 s left"),
        ((1, 0, 10, None), "computing a codex: 0 of 10 tokens (0 %)"),
    ],
)
def test_systemd_hears_how_far_a_prefix_is_and_how_long_the_rest_takes(told, words):
    assert prefill_words(*told) == words


def test_a_supervisor_that_reads_nothing_stops_nobody(tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as unread:
        unread.bind(str(tmp_path / "notify"))
        unread.setblocking(False)
        for _ in range(1000):  # more than the kernel keeps
            Notifier(str(tmp_path / "notify")).status("3 codices")
        assert unread.recv(100) == b"STATUS=3 codices"
