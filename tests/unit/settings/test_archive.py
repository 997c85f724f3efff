"""Where the archive is: places that can be meant, and keys that are in a file and in no message."""

from pathlib import Path

import pytest

from orchestrator.errors import SettingsError
from orchestrator.settings.archive import host_of, remote_archive
from orchestrator.settings.sources import load
from orchestrator.systemd import Unit, network

PLACE = 'uri = "s3://team/index"\n'


def settings_of(folder: Path, table: str):
    file = folder / "config.toml"
    file.write_text(f"[archive]\n{table}")
    return load({"HOME": str(folder)}, config=file).settings


def test_without_a_uri_the_archive_is_in_the_daemons_folder(tmp_path):
    settings = settings_of(tmp_path, "")
    assert remote_archive(settings, tmp_path) is None
    assert host_of(settings) == ""


def test_keys_come_from_their_file_and_options_from_the_settings(tmp_path):
    keys = tmp_path / "keys"
    keys.write_text("# of the team\nexport AWS_ACCESS_KEY_ID=AKIA1\nAWS_SECRET_ACCESS_KEY='s3cr3t'\n")
    given = f'{PLACE}options = ["Region=eu-central-1"]\nkey_file = "{keys}"\nwrites = false\nlease = "2min"\n'
    found = remote_archive(settings_of(tmp_path, given), tmp_path / "archive")
    assert found.options == {"region": "eu-central-1", "aws_access_key_id": "AKIA1", "aws_secret_access_key": "s3cr3t"}
    assert (found.uri, found.writes, found.lease_s) == ("s3://team/index", False, 120)
    assert str(tmp_path / "archive") in found.holder
    assert "s3cr3t" not in repr(found)


@pytest.mark.parametrize("text", ["", "AWS_SECRET_ACCESS_KEY=\n", "s3cr3t\n"])
def test_a_file_without_keys_is_refused_and_not_shown(tmp_path, text):
    keys = tmp_path / "keys"
    keys.write_text(text)
    with pytest.raises(SettingsError, match="holds no keys") as told:
        remote_archive(settings_of(tmp_path, f'{PLACE}key_file = "{keys}"\n'), tmp_path)
    assert "s3cr3t" not in str(told.value)
    with pytest.raises(SettingsError, match=r"archive\.key_file: .*: No such file"):
        remote_archive(settings_of(tmp_path, f'{PLACE}key_file = "{tmp_path}/none"\n'), tmp_path)


@pytest.mark.parametrize(
    "table",
    [
        'uri = "https://host/bucket"\n',
        'uri = "s3://"\n',
        'uri = "s3://id:s3cr3t@team/index"\n',
        f'{PLACE}options = ["aws_secret_access_key=s3cr3t"]\n',
        f'{PLACE}options = ["proxy_url=http://me:s3cr3t@proxy"]\n',
        f'{PLACE}options = ["s3cr3t"]\n',
    ],
)
def test_what_is_no_place_and_what_holds_a_key_is_refused_without_showing_it(tmp_path, table):
    with pytest.raises(SettingsError) as told:
        settings_of(tmp_path, table)
    assert "s3cr3t" not in f"{told.value.message} {told.value.hint}"


def test_a_unit_may_speak_to_the_storage_by_address_alone_or_has_the_network(tmp_path):
    assert network(Unit(Path("lore"), servers=[])).startswith("RestrictAddressFamilies=AF_UNIX\nPrivateNetwork=yes")
    by_address = settings_of(tmp_path, f'{PLACE}options = ["endpoint=http://10.0.0.7:9000"]\n')
    assert "IPAddressAllow=10.0.0.7\n" in network(Unit(Path("lore"), servers=[host_of(by_address)]))
    by_name = settings_of(tmp_path, PLACE)
    assert "PrivateNetwork" not in (text := network(Unit(Path("lore"), servers=[host_of(by_name)])))
    assert "IPAddress" not in text
