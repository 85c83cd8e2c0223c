"""Prompts are the published ones, or lines of a file."""

from antiphase.models.prompts import fill_templates, templates


def test_prompt_sets_are_the_published_ones(tmp_path):
    assert templates("paper") == ("a photo of {}",)
    assert templates("a") == ("a photo of a {}",)
    assert len(templates("imagenet80")) == 80
    assert templates("imagenet80")[0] == "a bad photo of a {}."
    (tmp_path / "mine.txt").write_text("a {}\n\nthe {} itself\n")
    assert fill_templates("lawn_mower", templates(str(tmp_path / "mine.txt"))) == [
        "a lawn mower",
        "the lawn mower itself",
    ]
