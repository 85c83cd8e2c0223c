"""A CLIP learns from tiles and is evaluated, attacked and measured on them, by the commands alone."""

import json

import pytest

from antiphase.cli import main
from antiphase.models.run import Run
from antiphase.store import read_entry

SMALL = ("--tokenizer", "bytes", "--context", 80, "--train-images", 100, "--epochs", 1, "--depth", 1)


@pytest.fixture(scope="module")
def tiles_run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("tiles") / "run"
    words = ("train-clip", "--out", folder, "--pairs", "tiles-digits", "--variant", "DiffCLIP", *SMALL)
    assert main([str(word) for word in words]) == 0
    return Run(folder)


def test_pairs_that_are_tiles_bring_sizes_of_their_own(tiles_run):
    vision = tiles_run.config.vision
    assert (vision.image, vision.patch) == (16, 4)
    assert tiles_run.about["data"]["templates"] == ["a photo of a {}"]
    assert "text_recall_at_1" in tiles_run.log[-1]


def test_tiles_give_zero_shot_retrieval_and_pairs_of_statements(tiles_run, cli):
    code, out, err = cli("eval", tiles_run.folder, "--on", "tiles-digits", "--no-cache", "--json")
    assert code == 0, err
    rows = {row["name"]: row for row in json.loads(out)["rows"]}
    assert rows["zero-shot"]["chance"] == pytest.approx(0.1)
    assert rows["text retrieval R@5"]["n"] == 64
    assert rows["pairs"]["n"] == 4 * rows["pairs: left or right"]["n"] == 600
    assert rows["pairs"]["chance"] == 0.25
    assert not any("mmvp" in name for name in rows)


def test_such_a_run_is_attacked_and_its_focus_measured_without_naming_images(tiles_run, cli):
    code, out, err = cli("attack", tiles_run.folder, "--eps", "8/255", "--images", 8, "--steps", 2, "--json")
    assert code == 0, err
    code, out, err = cli("measure", tiles_run.folder, "--measures", "focus", "--images", 8, "--json")
    assert code == 0, err
    (answer,) = json.loads(out)["focus"]
    assert answer["prompts"] == "own"
    assert {row["map"] for row in answer["layers"]} == {"A1", "A2", "A1 - lambda A2"}
    assert all(row["area"]["value"] == pytest.approx(0.25) for row in answer["layers"])
    assert len(answer["rows"]["mass"]) == 3 * 3 * 8 * tiles_run.config.vision.effective_diff_heads
    code, table, _ = cli("measure", tiles_run.folder, "--measures", "focus", "--images", 8)
    assert "A1 - lambda A2" in table


def test_the_correlation_on_captions_has_a_command_and_a_stored_answer(tiles_run, cli, tmp_path):
    words = ("measure", tiles_run.folder, "--measures", "caption-correlation", "--images", 12, "--long", 62)
    code, out, err = cli(*words, "--json")
    assert code == 0, err
    assert cli(*words, "--json")[1] == out  # read from the run's folder
    (answer,) = json.loads(out)["caption-correlation"]
    kinds = {row["perturbation"]: row["images"] for row in answer["layers"]}
    assert kinds["short"] + kinds["long"] == answer["data"]["n"] == 12
    kept = [read_entry(path).content for path in (tiles_run.folder / "measures").glob("*.json")]
    assert any(content.get("long") == 62 for content in kept)
    file = tmp_path / "captions.txt"
    file.write_text("a three beside a four\n\nseven\n")
    code, table, err = cli("measure", tiles_run.folder, "--measures", "caption-correlation", "--captions", file)
    assert code == 0, err
    assert "2 captions of captions.txt" in " ".join(table.split())


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--measures", "focus"), "digits has none: use tiles"),
        (("--measures", "caption-correlation"), "'digits' has none: name a captioned set or a text file by --captions"),
        (("--measures", "caption-correlation", "--captions", "tiles-digits"), "which has no text tower"),
    ],
)
def test_what_a_vit_on_digits_lacks_is_said_in_one_sentence(words, sentence, pair, cli):
    code, _, err = cli("measure", pair[1].folder, "--images", 4, *words)
    assert code == 2
    assert sentence in err
    assert len(err.strip().splitlines()) == 1
