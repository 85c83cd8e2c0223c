"""CIFAR as parquet and as torchvision lays it out; what is broken is named."""

import io
import json
import pickle
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from PIL import Image

from antiphase.config import InputError
from antiphase.data import load
from antiphase.data.readers.cifar import load_cifar
from tests.data.image_files import png


def write_parquet(folder: Path, images: list[bytes], labels: list[int], names=("a", "b")) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    info = {"info": {"features": {"label": {"names": list(names), "_type": "ClassLabel"}}}}
    table = pa.table({"img": [{"bytes": b, "path": None} for b in images], "label": labels})
    metadata = {"huggingface": json.dumps(info)} if names else {}
    pq.write_table(table.replace_schema_metadata(metadata), folder / "test-0.parquet")
    return folder


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


def test_torchvisions_folder_may_lie_inside(tmp_path):
    (tmp_path / "cifar10" / "cifar-10-batches-py").mkdir(parents=True)
    with pytest.raises(InputError, match="cifar-10-batches-py is not a whole copy"):
        load("cifar10", "test", root=tmp_path)


def test_a_torchvision_copy_with_a_file_missing_is_refused(tmp_path):
    (tmp_path / "cifar-10-batches-py").mkdir()
    with pytest.raises(InputError, match="cifar-10-batches-py is not a whole copy"):
        load("cifar10", "test", root=tmp_path)


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
