"""COCO as a classification set."""

import json
import shutil

import pytest

from antiphase.config import InputError
from antiphase.data import load


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
