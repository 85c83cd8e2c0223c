"""Name -> ImageSet, in the layouts people have on disk; what is broken is named."""

import io
import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from antiphase.config import InputError
from antiphase.data import cache, load
from antiphase.data.readers.cifar import load_cifar
from antiphase.data.readers.image_folders import is_test
from tests.conftest import HIGH_WATER


def png(value: int, side: int = 32) -> bytes:
    buffer = io.BytesIO()
    Image.new("RGB", (side, side), (value, 0, 255)).save(buffer, format="PNG")
    return buffer.getvalue()


# ------------------------------------------------------------------------------------------------- what every set promises


@pytest.mark.parametrize(
    ("name", "split", "n", "classes", "shape"),
    [
        ("digits", "train", 1437, 10, (1, 8, 8)),
        ("digits", "test", 360, 10, (1, 8, 8)),
        ("cifar10", "train", 50_000, 10, (3, 32, 32)),
        ("cifar10", "test", 10_000, 10, (3, 32, 32)),
        ("cifar100", "train", 10_000, 100, (3, 32, 32)),
        ("cifar100", "test", 2_000, 100, (3, 32, 32)),
        ("tiny-imagenet", "train", 6_000, 200, (3, 64, 64)),
        ("tiny-imagenet", "test", 1_000, 200, (3, 64, 64)),
        ("imagenet", "test", 1_000, 1000, (3, 224, 224)),
        ("coco", "test", 80, 80, (3, 224, 224)),
    ],
)
def test_every_set_gives_pixels_labels_and_names(name, split, n, classes, shape, data_root):
    images = load(name, split, root=data_root)
    assert (len(images), images.classes, images.shape) == (n, classes, shape)
    assert len(set(images.class_names)) >= classes - 2  # ImageNet has two pairs of classes with one name in some lists
    assert all(images.class_names)
    batch = images.subset(20).all
    assert batch.pixels.dtype == torch.float32
    assert batch.pixels.shape == (20, *shape)
    assert 0 <= batch.pixels.min() < batch.pixels.max() <= 1
    assert batch.labels.dtype == torch.int64


def test_cifar10_pixels_are_the_original_bytes(data_root):
    table = pq.read_table(next((data_root / "cifar10").rglob("test-*.parquet")))
    images = load("cifar10", "test", root=data_root)
    for row in (0, 4321, 9999):
        raw = np.asarray(Image.open(io.BytesIO(table["img"][row]["bytes"].as_py())).convert("RGB"))
        assert np.array_equal((images.batch(np.array([row])).pixels[0] * 255).round().byte().permute(1, 2, 0), raw)
        assert images.labels[row] == table["label"][row].as_py()


def test_torchvisions_layout_gives_the_same_images(data_root, tmp_path, monkeypatch):
    """Real images, written as torchvision's pickled batches; only the digest of the archive cannot be the original's."""
    from torchvision.datasets import CIFAR10, cifar

    monkeypatch.setattr(cifar, "check_integrity", lambda *_: True)
    whole = load("cifar10", "test", root=data_root)
    few = whole.batch(np.arange(50))
    folder = tmp_path / CIFAR10.base_folder
    folder.mkdir()
    flat = (few.pixels * 255).round().byte().flatten(1).numpy()
    content = {"data": flat, "labels": few.labels.tolist()}
    for name in [n for n, _ in CIFAR10.train_list + CIFAR10.test_list]:
        (folder / name).write_bytes(pickle.dumps(content))
    (folder / CIFAR10.meta["filename"]).write_bytes(pickle.dumps({"label_names": list(whole.class_names)}))
    ours = load("cifar10", "test", root=tmp_path)
    assert torch.equal(ours.all.pixels, few.pixels)
    assert ours.class_names == whole.class_names
    assert len(load("cifar10", "train", root=tmp_path)) == 250


def test_a_torchvision_copy_with_a_file_missing_is_refused(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(InputError, match="cifar-10-batches-py is not a whole copy"):
        load("cifar10", "test", root=tmp_path)


def test_coco_labels_are_the_category_of_largest_area_and_all_are_kept(data_root):
    images = load("coco", "test", root=data_root)
    raw = json.loads((data_root / "coco-tiny/annotations/instances_val2017.json").read_text())
    names = {c["id"]: c["name"] for c in raw["categories"]}
    ids = sorted(image["id"] for image in raw["images"])
    for row, image_id in enumerate(ids):
        area: dict[str, float] = {}
        for a in raw["annotations"]:
            if a["image_id"] == image_id:
                area[names[a["category_id"]]] = area.get(names[a["category_id"]], 0) + a["area"]
        assert images.class_names[images.labels[row]] == max(area, key=lambda k: area[k])
        assert {images.class_names[c] for c in images.categories[row]} == set(area)


def test_imagenet_classes_are_the_names_clip_is_prompted_with(data_root):
    images = load("imagenet", "test", root=data_root, image_size=64)
    assert images.class_names[0] == "tench"
    assert images.shape == (3, 64, 64)


# ------------------------------------------------------------------------------------------------- subsets and splits


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 360), st.integers(0, 5))
def test_subsets_are_balanced_seeded_and_nested(n, seed):
    whole = load("digits", "test")
    few = whole.subset(n, seed)
    counts = np.bincount(few.labels, minlength=10)
    room = np.bincount(whole.labels, minlength=10)
    assert len(few) == n
    for a in range(10):  # no class gets two more than another unless that other has run out
        assert all(counts[a] <= counts[b] + 1 or counts[b] == room[b] for b in range(10))
    assert np.array_equal(few.ids, whole.subset(n, seed).ids)
    assert set(few.ids) <= set(whole.subset(min(n + 7, 360), seed).ids)
    assert torch.equal(few.all.pixels, whole.source.read(few.ids))


def test_train_and_test_share_no_image():
    assert not set(load("digits", "train").ids) & set(load("digits", "test").ids)


def test_the_digits_split_is_fixed():
    assert load("digits", "test").fingerprint == "ec0a9bcf2e01f08b"


def test_a_subset_larger_than_the_set_is_refused():
    with pytest.raises(InputError, match="holds 360 images: cannot take 361"):
        load("digits", "test").subset(361)


def test_fingerprints_follow_the_choice_of_images():
    whole = load("digits", "test")
    prints = {whole.fingerprint, whole.subset(50).fingerprint, whole.subset(50, seed=1).fingerprint}
    assert len(prints) == 3


# ------------------------------------------------------------------------------------------------- a user's own folder


@pytest.fixture
def own_folder(tmp_path):
    for c, name in enumerate(("cat", "dog")):
        for i in range(30):
            path = tmp_path / "pets" / name / f"{i}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(png(100 * c + i, side=40 + i))
    return tmp_path / "pets"


def test_any_image_folder_is_a_data_set_with_a_fixed_split(own_folder):
    train, test = (load(str(own_folder), split, image_size=16) for split in ("train", "test"))
    assert train.class_names == test.class_names == ("cat", "dog")
    assert len(train) + len(test) == 60
    assert 4 <= len(test) <= 24
    assert train.shape == (3, 16, 16)
    assert np.array_equal(load(str(own_folder), "test", image_size=16).ids, test.ids)


def test_a_folder_with_its_own_split_keeps_it(own_folder, tmp_path):
    whole = tmp_path / "split"
    shutil.copytree(own_folder, whole / "train")
    shutil.copytree(own_folder / "cat", whole / "val" / "cat")
    shutil.copytree(own_folder / "dog", whole / "val" / "dog")
    assert len(load(str(whole), "train")) == len(load(str(whole), "test")) == 60


def test_streamed_and_cached_pixels_are_the_same(own_folder, monkeypatch):
    cached = load(str(own_folder), "train", image_size=24).all.pixels
    monkeypatch.setattr(cache, "CACHE_LIMIT", 0)
    assert torch.equal(load(str(own_folder), "train", image_size=24).all.pixels, cached)


def test_a_damaged_cache_is_made_again(own_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path / "cache"))
    good = load(str(own_folder), "train", image_size=20).all.pixels
    (stored,) = (tmp_path / "cache").glob("*.npy")
    raw = bytearray(stored.read_bytes())
    raw[-1] ^= 255
    stored.write_bytes(raw)
    assert torch.equal(load(str(own_folder), "train", image_size=20).all.pixels, good)


STREAM = f"""
import sys
import numpy as np
from antiphase.data import cache, load
cache.CACHE_LIMIT = 0
images = load(sys.argv[1], "test", image_size=64)
for batch in images.batches(32):
    batch.pixels.mean()
print(len(images), {HIGH_WATER})
"""


@pytest.mark.slow
def test_memory_does_not_grow_with_a_streamed_set(data_root, tmp_path):
    """300 and 3,000 real photographs: 37 MB and 369 MB as float32, were they held."""
    photographs = sorted((data_root / "tiny-imagenet-subset/train").rglob("*.JPEG"))[:3000]
    peaks = []
    for n in (300, 3000):
        folder = tmp_path / str(n) / "test" / "one"
        folder.mkdir(parents=True)
        for path in photographs[:n]:
            shutil.copy(path, folder / path.name)
        argv = [sys.executable, "-c", STREAM, str(tmp_path / str(n))]
        count, peak = subprocess.run(argv, capture_output=True, text=True, check=True).stdout.split()
        assert int(count) == n
        peaks.append(int(peak))
    assert peaks[1] < 1.05 * peaks[0]


# ------------------------------------------------------------------------------------------------- broken input is named


def write_parquet(folder: Path, images: list[bytes], labels: list[int], names=("a", "b")) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    info = {"info": {"features": {"label": {"names": list(names), "_type": "ClassLabel"}}}}
    table = pa.table({"img": [{"bytes": b, "path": None} for b in images], "label": labels})
    metadata = {"huggingface": json.dumps(info)} if names else {}
    pq.write_table(table.replace_schema_metadata(metadata), folder / "test-0.parquet")
    return folder


def test_an_image_that_cannot_be_decoded_is_named_with_its_row(tmp_path):
    folder = write_parquet(tmp_path / "cifar10", [png(1), png(2)[:40]], [0, 1])
    with pytest.raises(InputError, match=r"test-0\.parquet, row 1, cannot be decoded"):
        load("cifar10", "test", root=tmp_path)
    assert folder.exists()


def test_a_label_out_of_range_is_named_with_its_file(tmp_path):
    write_parquet(tmp_path / "cifar10", [png(1), png(2)], [0, 2])
    with pytest.raises(InputError, match=r"test-0\.parquet: label 2 in row 1 is out of range for 2 classes"):
        load("cifar10", "test", root=tmp_path)


def test_a_parquet_file_without_class_names_or_of_another_size_is_refused(tmp_path):
    folder = write_parquet(tmp_path / "one", [png(1)], [0], names=())
    with pytest.raises(InputError, match="does not name its classes"):
        load_cifar("cifar10", "test", folder)
    folder = write_parquet(tmp_path / "two", [png(1, side=8)], [0])
    with pytest.raises(InputError, match="8 x 8, not 32 x 32"):
        load_cifar("cifar10", "test", folder)
    (folder / "test-0.parquet").write_bytes(b"PAR1 but not really")
    with pytest.raises(InputError, match="cannot be read as parquet"):
        load_cifar("cifar10", "test", folder)


def test_columns_of_the_wrong_kind_are_named(tmp_path):
    def table(label, column="img"):
        images = [{"bytes": png(1), "path": None}] * 2
        pq.write_table(pa.table({column: images, "label": label}), tmp_path / "test-0.parquet")
        with pytest.raises(InputError) as refusal:
            load_cifar("cifar10", "test", tmp_path)
        return str(refusal.value)

    assert "int64 with 1 empty" in table([1, None])
    assert "double with 0 empty" in table([0.5, 1.0])
    assert "string with 0 empty" in table(["cat", "dog"])
    assert "no column 'image'" in table([0, 1], column="picture")


def test_torchvisions_folder_may_lie_inside(tmp_path):
    (tmp_path / "cifar10" / "cifar-10-batches-py").mkdir(parents=True)
    with pytest.raises(InputError, match="cifar-10-batches-py is not a whole copy"):
        load("cifar10", "test", root=tmp_path)


def test_a_coco_file_of_another_kind_is_named(tmp_path, data_root):
    shutil.copytree(data_root / "coco-tiny", tmp_path / "coco")
    table = tmp_path / "coco/annotations/instances_val2017.json"
    raw = json.loads(table.read_text())
    for harm, named in (
        ({"categories": None}, "not a COCO instances file"),
        ({"annotations": [{"id": 1, "image_id": 1, "category_id": 999, "area": 1}]}, "category 999 of annotation 1"),
        ({"annotations": [{"id": 1, "image_id": 1, "category_id": 1}]}, "'area'"),
    ):
        table.write_text(json.dumps(raw | harm))
        with pytest.raises(InputError, match=named) as refusal:
            load("coco", "test", root=tmp_path)
        assert "instances_val2017.json" in str(refusal.value)
    table.write_text(json.dumps({k: v for k, v in raw.items() if k != "annotations"}))
    with pytest.raises(InputError, match="no entry 'annotations'"):
        load("coco", "test", root=tmp_path)


def test_test_classes_are_the_training_classes(own_folder, tmp_path):
    whole = tmp_path / "split"
    shutil.copytree(own_folder, whole / "train")
    shutil.copytree(own_folder / "dog", whole / "val" / "dog")
    test = load(str(whole), "test")
    assert test.class_names == ("cat", "dog")
    assert set(test.labels) == {1}
    shutil.copytree(own_folder / "dog", whole / "val" / "wolf")
    with pytest.raises(InputError, match="the training split has no class 'wolf'"):
        load(str(whole), "test")


def test_the_fingerprint_of_files_follows_their_pixels(own_folder):
    before = load(str(own_folder), "train", image_size=8)
    for path in own_folder.rglob("*.png"):
        path.write_bytes(png(200, side=40))
    assert load(str(own_folder), "train", image_size=8).fingerprint != before.fingerprint


def test_a_damaged_photograph_is_named(own_folder):
    broken = own_folder / "cat" / "7.png"
    broken.write_bytes(broken.read_bytes()[:60])
    split = "test" if is_test(broken.relative_to(own_folder)) else "train"
    with pytest.raises(InputError, match=r"cat/7\.png cannot be decoded"):
        load(str(own_folder), split, image_size=12)


def test_empty_folders_and_missing_annotations_are_named(tmp_path, data_root):
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"empty is empty: expected one folder of images for each class"):
        load(str(tmp_path / "empty"), "train")
    (tmp_path / "empty" / "cat").mkdir()
    with pytest.raises(InputError, match=r"cat is empty: expected image files"):
        load(str(tmp_path / "empty"), "train")
    tiny = tmp_path / "tiny-imagenet"
    shutil.copytree(
        data_root / "tiny-imagenet-subset", tiny, ignore=shutil.ignore_patterns("train", "val_annotations.txt")
    )
    with pytest.raises(InputError, match=r"val_annotations\.txt is missing"):
        load("tiny-imagenet", "test", root=tmp_path)
    (tiny / "val" / "val_annotations.txt").write_text("val_0.JPEG\tn99999999\t0\t0\t1\t1\n")
    with pytest.raises(InputError, match=r"val_annotations\.txt, line 1: n99999999 is out of range"):
        load("tiny-imagenet", "test", root=tmp_path)
    coco = tmp_path / "coco"
    shutil.copytree(data_root / "coco-tiny" / "val2017", coco / "val2017")
    with pytest.raises(InputError, match=r"instances_val2017\.json is missing"):
        load("coco", "test", root=tmp_path)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda root: load("cifra10", "test", root=root), "did you mean 'cifar10'"),
        (lambda _: load("digits", "validation"), "'validation': it takes 'train' or 'test'"),
        (lambda _: load("digits", "test", image_size=16), "image_size=16 cannot be used"),
        (lambda root: load("cifar10", "test", root=root), "cifar10 is not below"),
        (lambda root: load("cifar10", "test", root=root / "none"), "none is not a folder"),
        (lambda root: load("coco", "test", root=root, download=True), "coco cannot be downloaded"),
    ],
)
def test_what_cannot_be_loaded_is_refused_by_name(call, named, tmp_path):
    with pytest.raises(InputError, match=named):
        call(tmp_path)


def test_without_a_data_root_the_variable_is_named(monkeypatch):
    monkeypatch.delenv("ANTIPHASE_DATA", raising=False)
    with pytest.raises(InputError, match="--data-root or the variable ANTIPHASE_DATA"):
        load("cifar10", "test")


def test_download_fetches_checks_and_unpacks(tmp_path, data_root, monkeypatch):
    """A real server on this machine and a real archive in Tiny ImageNet's layout."""
    import functools
    import hashlib
    import http.server
    import threading

    from antiphase.data import download

    source = tmp_path / "source" / "tiny-imagenet-200"
    ignore = shutil.ignore_patterns("train")
    shutil.copytree(data_root / "tiny-imagenet-subset", source, ignore=ignore)
    archive = Path(shutil.make_archive(str(tmp_path / "tiny-imagenet-200"), "zip", source.parent))
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/{archive.name}"
        monkeypatch.setattr(download, "TINY_IMAGENET", (url, "0" * 32))
        with pytest.raises(InputError, match="could not be downloaded"):
            load("tiny-imagenet", "test", root=tmp_path / "a", download=True)
        monkeypatch.setattr(download, "TINY_IMAGENET", (url, hashlib.md5(archive.read_bytes()).hexdigest()))
        assert len(load("tiny-imagenet", "test", root=tmp_path / "b", download=True)) == 1000
        server.shutdown()
