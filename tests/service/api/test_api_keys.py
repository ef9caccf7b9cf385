"""Several keys, whose owners have names."""

from __future__ import annotations

from pathlib import Path

import pytest

from service.api.api_keys import ApiKeys, load_api_keys
from service.settings import Settings, SettingsError
from tests.service.serving import recorded_clients, serving

GOOD = """\
# The keys of our teams.
team-a: sesame

  team.b :open:it  \r
    # team-a's next key
team-a:ключ
"""


def write(folder: Path, content: str | bytes) -> str:
    path = folder / "keys"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return str(path)


def loaded(**settings: object) -> ApiKeys:
    keys = load_api_keys(Settings.model_validate(settings))
    assert keys is not None
    return keys


def test_no_keys() -> None:
    assert load_api_keys(Settings()) is None


def test_each_key_is_its_owners(tmp_path: Path) -> None:
    keys = loaded(api_key="single", api_key_file=write(tmp_path, GOOD))
    owners = {
        key: keys.client_of(key.encode(), address="192.0.2.1")
        for key in ("sesame", "open:it", "ключ", "single", "", "team-a", "sesam", "sesame ", "team-a: sesame")
    }
    assert {key: owner for key, owner in owners.items() if owner is not None} == {
        "sesame": "team-a",
        "open:it": "team.b",
        "ключ": "team-a",
        "single": "192.0.2.1",
    }


def test_a_byte_order_mark_is_no_part_of_a_name(tmp_path: Path) -> None:
    keys = loaded(api_key_file=write(tmp_path, b"\xef\xbb\xbfteam-a:sesame"))
    assert keys.client_of(b"sesame", address="") == "team-a"


def test_all_faults_are_told_at_once_by_line_and_without_the_key(tmp_path: Path) -> None:
    content = "\n".join(
        [
            "hidden1",
            "team-a:hidden2",
            "1team:hidden3",
            "",
            "te am:hidden4",
            ":hidden5",
            "team-b:",
            "team-c:hidden 6",
            "team-d:hidden\x007",
            "team-e:hidden2",
            "team-f:hidden8",
            "x" * 65 + ":hidden9",
        ]
    )
    with pytest.raises(SettingsError) as caught:
        loaded(api_key="hidden8", api_key_file=write(tmp_path, content))
    place = f"--api-key-file (API_KEY_FILE) is '{tmp_path}/keys': "
    name_rule = "the name must be 1 to 64 letters, digits, dots, underscores and dashes, beginning with a letter"
    assert [line.removeprefix(place) for line in str(caught.value).splitlines()] == [
        "line 1: must be name:key, with a colon",
        f"line 3: {name_rule}",
        f"line 5: {name_rule}",
        f"line 6: {name_rule}",
        "line 7: the key must not be empty",
        "line 8: the key must not hold spaces or control characters",
        "line 9: the key must not hold spaces or control characters",
        "line 10: the key is that of line 2",
        "line 11: the key is that of --api-key (API_KEY)",
        f"line 12: {name_rule}",
    ]
    assert "hidden" not in str(caught.value)


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        ("", "must hold at least one line name:key"),
        ("# none yet\n\n", "must hold at least one line name:key"),
        (b"team-a:\xff", "must be text in UTF-8"),
        (None, "No such file or directory"),
    ],
)
def test_a_file_without_keys_is_refused(content: str | bytes | None, fault: str, tmp_path: Path) -> None:
    path = str(tmp_path / "keys") if content is None else write(tmp_path, content)
    with pytest.raises(SettingsError) as caught:
        loaded(api_key_file=path)
    assert str(caught.value) == f"--api-key-file (API_KEY_FILE) is {path!r}: {fault}"


def test_owners_take_turns_by_name_and_others_by_address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = recorded_clients(monkeypatch)
    with serving(api_key="single", api_key_file=write(tmp_path, GOOD)) as client:
        statuses = [
            client.post("/embed", json={"inputs": "a"}, headers={"authorization": f"Bearer {key}"}).status_code
            for key in ("sesame", "open:it", "single", "other")
        ]
        assert client.get("/openapi.json").json()["security"] == [{"api_key": []}]
    assert statuses == [200, 200, 200, 401]
    assert seen == ["team-a", "team.b", "testclient"]
