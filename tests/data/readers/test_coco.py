"""COCO as a classification set."""

import json
import shutil

import pytest
from PIL import Image

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


def test_boxes_are_around_the_objects_of_the_label_within_the_square_that_is_kept(tmp_path):
    """A picture of 40 x 20: the square that is kept begins at column 10."""
    folder = tmp_path / "coco"
    (folder / "val2017").mkdir(parents=True)
    (folder / "annotations").mkdir()
    Image.new("RGB", (40, 20)).save(folder / "val2017" / "1.jpg")
    boxes = [(1, [0, 0, 20, 10]), (1, [15, 10, 10, 10]), (1, [0, 0, 5, 20]), (2, [12, 0, 2, 2])]
    table = {
        "images": [{"id": 1, "file_name": "1.jpg", "width": 40, "height": 20}],
        "categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": "dog"}],
        "annotations": [
            {"id": i, "image_id": 1, "category_id": category, "area": box[2] * box[3], "bbox": box}
            for i, (category, box) in enumerate(boxes)
        ],
    }
    path = folder / "annotations" / "instances_val2017.json"
    path.write_text(json.dumps(table))
    images = load("coco", "test", root=tmp_path, image_size=20)
    assert images.class_names[images.labels[0]] == "cat"
    assert images.boxes[0].tolist() == [[0.0, 0.0, 0.5, 0.5], [0.5, 0.25, 1.0, 0.75]]  # the third is outside
    del table["annotations"][0]["bbox"]
    path.write_text(json.dumps(table))
    assert load("coco", "test", root=tmp_path, image_size=20).boxes is None
