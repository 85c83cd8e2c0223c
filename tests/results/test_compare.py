"""A comparison pairs the same images of two runs, and names what else differs between them."""

from antiphase.results.compare import differences


def test_the_paired_test_is_about_images_that_both_classify_correctly(comparison):
    first, second = (side["attacks"] for side in comparison["models"])
    for row, a, b in zip(comparison["paired"], first, second):
        images = [cell["images"] for cell in (a, b)]
        n = sum(x == y == label for x, y, label in zip(images[0]["clean"], images[1]["clean"], images[0]["label"]))
        assert row["both_right"]["n"] == n < row["all"]["n"] == 120


def test_differences_between_the_runs_are_listed(pair, digits, tmp_path):
    from antiphase.models import ViTConfig
    from antiphase.training import TrainConfig
    from antiphase.training.loop import train

    other = train(ViTConfig(patch=2, width=32, heads=4), TrainConfig(epochs=1), *digits, tmp_path / "other")
    assert differences(*pair) == []
    assert "epochs: 40 and 1" in differences(pair[0], other)
    assert "width: 64 and 32" in differences(pair[0], other)


def test_penalties_are_named_as_on_the_command_line():
    from types import SimpleNamespace

    from antiphase.config import to_plain
    from antiphase.models import ViTConfig
    from antiphase.training import TrainConfig
    from antiphase.training.penalty_syntax import parse_penalty

    def run(penalty):
        training = to_plain(TrainConfig(penalty=parse_penalty(penalty)))
        return SimpleNamespace(about={"model": {}, "training": training, "data": {}}, config=ViTConfig())

    assert differences(run("none"), run("noise-change:weight=0.3")) == ["penalty: none and noise-change:weight=0.3"]
    assert differences(run("kappa"), run("amplification")) == ["penalty: kappa and amplification"]
    assert differences(run("kappa"), run("kappa")) == []
