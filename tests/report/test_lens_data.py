"""Which looks one lens can show, and where a reader begins."""

import json

from antiphase.report import lens_data
from antiphase.report.lens_data import payload, start, together


def test_the_lens_begins_where_all_models_lose_an_image_they_had(comparison):
    cells = comparison["looks"]
    labels = cells[0]["labels"]
    looks = [("ViT", cells[0]), ("DiffViT", cells[1])]
    begin = start(looks)
    for cell in cells:
        assert cell["predictions"][0][begin["image"]][0][0] == labels[begin["image"]]
        assert cell["predictions"][begin["budget"] + 1][begin["image"]][0][0] != labels[begin["image"]]


def test_looks_at_other_images_or_beyond_the_room_are_left_out_by_name(comparison, monkeypatch):
    cells = comparison["looks"]
    other = cells[1] | {"data": cells[1]["data"] | {"fingerprint": "else"}}
    chosen, left = together([("a", cells[0]), ("b", cells[1]), ("c", other)])
    assert [name for name, _ in chosen] == ["a", "b"]
    assert left == ["c"]
    monkeypatch.setattr(lens_data, "ROOM", len(cells[0]["packed"]) + 10)
    assert together([("a", cells[0]), ("b", cells[1])])[1] == ["b"]
    assert json.dumps(payload(chosen, {"a": 0, "b": 1}), allow_nan=False)
