"""Whatever is kept has a digest; what is not as it was written is named, and what earlier versions wrote is read."""

import gzip
import json
from dataclasses import dataclass

import pytest

from antiphase.attacks import PGD, Linf
from antiphase.config import InputError, fingerprint
from antiphase.files import Damaged, digest_of
from antiphase.store import FORMAT, Keyed, Store, Work, compress, entries_in, essence, read_entry

CONTENT = {"rate": 0.25, "hits": [1, 0, 1], "name": "ä"}


def test_an_entry_comes_back_as_it_was_put_with_its_digest_and_format(tmp_path):
    store = Store(tmp_path / "answers")
    assert store.get("a") is None
    put = store.put("a", CONTENT)
    assert store.get("a") == put
    assert "a" in store
    written = json.loads(store.path("a").read_text())
    assert written == {"format": FORMAT, "digest": digest_of(CONTENT), "content": CONTENT}


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text.replace("0.25", "0.95"),
        lambda text: text[:-20],
        lambda text: text.replace('"hits"', '"hit"'),
        lambda text: text.replace('"digest"', '"digset"'),
        lambda _: "[]",
        lambda _: "",
    ],
)
def test_any_change_of_a_file_is_noticed_and_named(tmp_path, damage):
    store = Store(tmp_path)
    path = store.put("a", CONTENT).path
    path.write_text(damage(path.read_text()))
    with pytest.raises(Damaged, match=r"a\.json is damaged.*run again"):
        store.get("a")
    (found,) = store.entries()
    assert isinstance(found, Damaged)


def test_a_compressed_entry_is_read_under_its_own_name_and_any_change_of_it_is_noticed(tmp_path):
    store = Store(tmp_path)
    put = store.put("a", CONTENT)
    packed = compress(put.path)
    assert [path.name for path in tmp_path.iterdir()] == [packed.name] == ["a.json.gz"]
    assert "a" in store
    assert store.get("a") == put == read_entry(put.path)
    assert entries_in(tmp_path) == [put.path]
    whole = packed.read_bytes()
    for at in range(len(whole)):
        packed.write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        try:  # a bit of gzip's own header (its time, its system) may change; what is read may not
            assert store.get("a") == put
        except Damaged as damage:
            assert "a.json is damaged" in str(damage)  # noqa: PT017  either is right
    packed.write_bytes(whole[:-5])
    with pytest.raises(Damaged, match=r"a\.json is damaged.*run again"):
        store.get("a")


def test_a_compressed_entry_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("antiphase.store.LARGEST", 1000)
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b" " * 10_000_000))
    with pytest.raises(Damaged, match="larger than 1,000 bytes"):
        Store(tmp_path).get("a")


def test_infinity_and_nan_are_refused_before_anything_is_written(tmp_path):
    store = Store(tmp_path)
    with pytest.raises(ValueError, match="JSON compliant"):
        store.put("a", {"rate": float("nan")})
    assert "a" not in store


def test_both_earlier_layouts_are_read(tmp_path):
    (tmp_path / "row.json").write_text(json.dumps({"digest": digest_of(CONTENT), "row": CONTENT}))
    (tmp_path / "bare.json").write_text(json.dumps(CONTENT))
    assert read_entry(tmp_path / "row.json").content == CONTENT
    assert read_entry(tmp_path / "bare.json", bare=True).content == CONTENT
    with pytest.raises(Damaged):
        read_entry(tmp_path / "bare.json")  # a ledger never wrote rows without a digest
    with pytest.raises(InputError, match="does not exist"):
        read_entry(tmp_path / "none.json")


@dataclass(frozen=True, kw_only=True)
class Cell(Keyed):
    attack: PGD
    note: str = ""


def test_a_key_ignores_fields_at_their_defaults_and_keeps_the_stored_names_of_renamed_ones():
    attack = PGD(within=Linf("4/255"), steps=7, restarts=2)
    assert essence(attack)["runs"] == 2
    assert essence(Cell(attack=attack)) == {"kind": "Cell", "attack": essence(attack)}
    assert Cell(attack=attack).key != Cell(attack=attack, note="other").key
    assert Cell(attack=attack).key == fingerprint({"format": 1, "cell": essence(Cell(attack=attack))})


def test_work_counts_images_layers_and_what_only_the_first_images_cost():
    work = Work(per_image=10, per_layer=3, first=(60, 32))
    assert work.forwards(images=16, depth=2) == 10 + 6 + 60
    assert work.forwards(images=64, depth=2) == 10 + 6 + 30
