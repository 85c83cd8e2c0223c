"""antiphase train-clip"""

import json
import re

import pytest

from antiphase.models.run import Run


def test_train_clip_on_the_command_line(cli, tmp_path):
    words = ["--epochs", 1, "--train-images", 200, "--batch-size", 50]
    code, out, err = cli("train-clip", "--out", tmp_path / "a", "--variant", "DiffCLIP-dagger", *words)
    assert code == 0, err
    assert "DiffCLIP-dagger in" in out
    assert re.search(r"zero-shot test accuracy [\d.]+ % \[[\d.]+, [\d.]+\] \(n = 360 test images\)", out)
    again = [
        "train-clip",
        "--out",
        tmp_path / "b",
        "--config",
        tmp_path / "a" / "run.json",
        "--variant",
        "CLIP",
        "--json",
    ]
    code, out, err = cli(*again)
    assert code == 0, err
    assert json.loads(out)["title"] == "CLIP"
    first, second = (Run(tmp_path / name).about for name in "ab")
    assert first["training"] == second["training"]
    assert first["data"] == second["data"]
    code, _, err = cli("train-clip", "--out", tmp_path / "a", "--variant", "DiffCLIP", *words)
    assert code == 2
    assert "holds another run" in err


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--pairs", "flickr9k"], "no data set or folder 'flickr9k'"),
        (["--allow", "lies"], "'lies' is not known: it takes missing, empty, broken, long"),
        (["--patch", "3"], "patch=3 does not tile"),
        (["--scale", "paper"], "no pairs are named"),
        (["--prompts", "poems"], "prompts 'poems' are not known"),
        (["--micro-batch", "0"], "micro_batch=0"),
        (["--image", "16"], "looks at 16 x 16: set image=8"),
    ],
)
def test_what_cannot_be_trained_is_refused_in_one_sentence(cli, tmp_path, words, said):
    code, out, err = cli("train-clip", "--out", tmp_path / "run", *words)
    assert (code, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_counts_of_what_was_left_out_are_printed_and_kept(cli, tmp_path):
    from tests.data.shards import sample, write_shard

    write_shard(tmp_path / "s" / "0.tar", [sample(i, **({"txt": b""} if i == 3 else {})) for i in range(30)])
    words = ["train-clip", "--out", tmp_path / "run", "--pairs", tmp_path / "s", "--epochs", 1, "--batch-size", 8]
    code, _, err = cli(*words)
    assert code == 2
    assert "sample 00003, has no caption" in err
    code, out, err = cli(*words, "--allow", "empty")
    assert code == 0, err
    assert "1 captions without a word" in out
    assert Run(tmp_path / "run").about["data"]["train"]["skipped"] == {"empty": 1}
