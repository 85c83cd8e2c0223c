"""Input that was made to harm: one sentence and exit code 2, or it works; never a traceback, a hang or half a folder."""

import json
import os
import re
import shutil
import signal
import tarfile
from contextlib import contextmanager, suppress
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from antiphase.config import InputError, read_yaml, shown
from antiphase.console import all_visible, visible
from antiphase.data.pair_catalog import load_pairs
from antiphase.files import DiskFull
from antiphase.models.convert import convert
from antiphase.models.run import Run
from tests.hostile_files import (
    ATTACK,
    CASES,
    FIXTURES,
    QUICK,
    VALUES,
    altered_run,
    image_folder,
    leaves,
    replaced,
    run_of_digits,
    sparse_shard,
)

PAIR = Path(__file__).parents[1] / "results" / "pair" / "ViT"
DANGEROUS = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
SECONDS = 60  # after which a case counts as a hang


class Hang(BaseException):
    """Nothing catches it by accident."""


@contextmanager
def within(seconds):
    def stop(*_):
        raise Hang

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def check_refused(name, folder, cli):
    argv = CASES[name](folder)
    with within(SECONDS):
        code, _, err = cli(*argv)
    assert code == 2, err
    assert len(err.strip().split("\n")) == 1, err
    assert len(err) < 3000
    assert not DANGEROUS.search(err), ascii(err)
    assert not (folder / "out").exists()


@pytest.mark.parametrize("name", QUICK)
def test_a_hostile_file_is_refused_in_one_line(name, tmp_path, cli):
    check_refused(name, tmp_path, cli)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in CASES if name not in QUICK])
def test_every_other_hostile_file_is_refused_in_one_line(name, tmp_path, cli):
    check_refused(name, tmp_path, cli)


# ------------------------------------------------------------------------------------------------- run.json, every value of it


ABOUT = json.loads((PAIR / "run.json").read_text())
PLACES = [path for path in leaves(ABOUT) if path[:1] != ("environment",) or len(path) < 3]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A copy of a run that is committed."""
    return Path(shutil.copytree(PAIR, tmp_path_factory.mktemp("run") / "ViT"))


def use_or_refuse(run, path, value, cli):
    """Whether the run still serves; if not, it is refused in a sentence, by Python and by the command line."""
    altered_run(run, json.dumps(replaced(ABOUT, path, value)))
    with within(SECONDS), suppress(InputError):
        opened = Run(run)
        assert opened.templates
        assert opened.name
        model = opened.model()
        with torch.no_grad():
            assert model(torch.zeros(1, *opened.input_shape)).isfinite().all()
    with within(SECONDS):
        code, _, err = cli("report", run, "--out", run.parent / "page")
    assert code in (0, 2), err
    assert len(err.strip().split("\n")) == 1
    assert not DANGEROUS.search(err)


@pytest.mark.parametrize("value", VALUES)
def test_a_run_with_one_value_altered_works_or_is_refused(value, trained, cli):
    few = [path for i, path in enumerate(PLACES) if path and i % 7 == len(value) % 7]
    for path in few:
        use_or_refuse(trained, path, VALUES[value], cli)


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES)
def test_a_run_with_any_value_altered_works_or_is_refused(value, trained, cli):
    for path in filter(None, PLACES):
        use_or_refuse(trained, path, VALUES[value], cli)


@pytest.mark.slow
@pytest.mark.parametrize("value", VALUES)
def test_an_attack_on_a_run_with_any_value_altered_works_or_is_refused(value, tmp_path, cli):
    run = run_of_digits(tmp_path)
    about = json.loads((run / "run.json").read_text())
    for path in filter(None, leaves(about)):
        altered_run(run, json.dumps(replaced(about, path, VALUES[value])))
        with within(SECONDS):
            code, _, err = cli("attack", run, *ATTACK)
        assert code in (0, 2), err
        assert len(err.strip().split("\n")) == 1
        assert not DANGEROUS.search(err)


def test_a_missing_value_of_a_run_is_named(tmp_path):
    run = run_of_digits(tmp_path)
    about = json.loads((run / "run.json").read_text())
    for name in ("origin", "shape", "class_names", "train"):
        data = {key: value for key, value in about["data"].items() if key != name}
        altered_run(run, json.dumps({**about, "data": data}))
        with pytest.raises(InputError, match=f"no entry 'data.{name}"):
            Run(run).input_shape  # noqa: B018


def test_a_config_larger_than_its_weights_is_refused_before_it_is_built(tmp_path, monkeypatch):
    run = run_of_digits(tmp_path)
    about = json.loads((run / "run.json").read_text())
    altered_run(run, json.dumps(replaced(about, ("model", "depth"), 10_000)))
    monkeypatch.setattr("antiphase.models.run.build", lambda *_, **__: pytest.fail("it was built"))
    with pytest.raises(InputError, match=r"at least .* parameters, and its weights have"):
        Run(run).model()


# ------------------------------------------------------------------------------------------------- convert


def test_a_conversion_that_fails_leaves_the_folder_as_it_was(tmp_path, monkeypatch):
    def fail(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("antiphase.models.run.save_file", fail)
    with pytest.raises(DiskFull, match="is full"):
        convert(str(FIXTURES / "diffclip.pt"), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    (tmp_path / "there").mkdir()
    with pytest.raises(DiskFull, match="is full"):
        convert(str(FIXTURES / "diffclip.pt"), tmp_path / "there")
    assert not [p for p in (tmp_path / "there").iterdir() if p.name != ".lock"]


# ------------------------------------------------------------------------------------------------- shards


def shard_of(path, members):
    with tarfile.open(path, "w") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, BytesIO(content))


@pytest.fixture
def shard(tmp_path):
    picture = BytesIO()
    Image.fromarray(np.full((8, 8, 3), 99, dtype=np.uint8)).save(picture, "png")
    good = {f"{i}.{suffix}": c for i in range(9) for suffix, c in (("png", picture.getvalue()), ("txt", b"grey"))}
    (tmp_path / "shards").mkdir()
    shard_of(tmp_path / "shards" / "0.tar", {**good, "large.png": bytes(100_000), "large.txt": b"zeros"})
    return tmp_path / "shards"


def test_a_member_above_the_limit_is_refused_or_counted_and_the_limit_can_be_raised(shard, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_MEMBER_LIMIT", "50000")
    with pytest.raises(InputError, match=r"100,000 bytes, more than the 50,000 that ANTIPHASE_MEMBER_LIMIT allows"):
        load_pairs(str(shard), "all", image_size=8)
    counted = load_pairs(str(shard), "all", image_size=8, allow=("broken",))
    assert (len(counted), counted.skipped) == (9, (("broken", 1),))
    monkeypatch.setenv("ANTIPHASE_MEMBER_LIMIT", "200000")
    with pytest.raises(InputError, match=r"sample large, cannot be decoded"):
        load_pairs(str(shard), "all", image_size=8)
    monkeypatch.setenv("ANTIPHASE_MEMBER_LIMIT", "much")
    with pytest.raises(InputError, match="'much' is not a number of bytes"):
        load_pairs(str(shard), "all", image_size=8)


def test_a_sparse_member_is_counted_as_broken_where_that_is_allowed(shard):
    sparse_shard(shard / "1.tar", "sparse.png", 20 * 2**30)
    (shard / "0.tar").unlink()
    with pytest.raises(InputError, match="sparse member"):
        load_pairs(str(shard), "all", image_size=8)
    with pytest.raises(InputError, match="leaves no captioned image"):
        load_pairs(str(shard), "all", image_size=8, allow=("broken",))


# ------------------------------------------------------------------------------------------------- names


def test_what_moves_colours_or_reorders_a_line_is_shown_as_an_escape():
    assert visible("a\x1b[31mb\r\n\t\x00\x9b\u202ec\u2066\ud800\u2028") == (
        r"a\x1b[31mb\r\n\t\x00\x9b\u202ec\u2066\ud800\u2028"
    )
    for name in ("caf\u00e9", "\u732b", "\u05d7\u05ea\u05d5\u05dc", "\U0001f408", "two words", "a\u200db", "\u00a0"):
        assert visible(name) == name
    assert visible("two\nlines", keep="\n") == "two\nlines"
    assert all_visible({"\x1b": ["\x07", 3, ("\u202e", None)]}) == {r"\x1b": [r"\x07", 3, (r"\u202e", None)]}


def test_a_refused_value_is_short_however_large_or_deep_it_is():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    for value in (deep, "x" * 10**6, 10**400, 1 << 10**6, list(range(10**6)), {str(i): i for i in range(10**5)}):
        assert len(shown(value)) < 500
        assert "\n" not in shown(value)


NASTY = "cat\x1b[31m\u202egod\x07"


@pytest.fixture
def nasty_run(tmp_path, cli):
    """A run on images of a class with an escape and a mark of direction in its name, in a folder of such a name."""
    images = image_folder(tmp_path)
    for split in ("train", "test"):
        (images / split / "cat").rename(images / split / NASTY)
    run = tmp_path / f"run {NASTY}"
    small = ("--image-size", 8, "--patch", 4, "--width", 8, "--heads", 2, "--epochs", 1, "--device", "cpu")
    code, out, err = cli("train", "--out", run, "--data", images, *small)
    assert code == 0, err
    assert not DANGEROUS.search(out + err)
    assert r"run cat\x1b[31m\u202egod\x07" in out
    return run


def test_names_with_escapes_serve_throughout_and_never_reach_terminal_or_page(nasty_run, cli):
    code, out, err = cli("attack", nasty_run, *ATTACK)
    assert (code, DANGEROUS.search(out + err)) == (0, None), err
    code, out, err = cli("attack", nasty_run, *ATTACK, "--json")
    assert code == 0
    assert json.loads(out)["cells"]
    assert not DANGEROUS.search(out)
    code, out, err = cli("look", nasty_run, "--images", 2, "--device", "cpu", "--eps", "8/255")
    assert (code, DANGEROUS.search(out + err)) == (0, None), err
    code, out, err = cli("report", nasty_run)
    assert (code, DANGEROUS.search(out + err)) == (0, None), err
    page = (nasty_run / "report" / "index.html").read_text(encoding="utf-8")
    assert r"cat\x1b[31m\u202egod" in page
    assert not DANGEROUS.search(page.replace("\t", ""))


def test_a_name_that_is_not_utf8_is_refused_before_any_work(tmp_path, cli, monkeypatch):
    bad = os.fsdecode(os.fsencode(tmp_path) + b"/\xff\xfe")
    for argv in (["train", "--out", bad], ["attack", bad], ["report", bad], ["convert", bad, "x"], ["audit", bad]):
        code, out, err = cli(*argv)
        assert (code, out, len(err.strip().split("\n"))) == (2, "", 1)
        assert "not UTF-8" in err
    assert not list(tmp_path.iterdir())
    with pytest.raises(InputError, match="not UTF-8"):
        Run(bad).input_shape  # noqa: B018
    Path(bad).mkdir()
    monkeypatch.chdir(bad)
    assert "not UTF-8" in cli("train", "--out", "run")[2]


# ------------------------------------------------------------------------------------------------- config files


def test_aliases_that_people_write_are_read(tmp_path):
    (tmp_path / "run.yaml").write_text("model: &m {width: 8}\ntraining: {epochs: 1}\nsame: *m\n")
    assert read_yaml(tmp_path / "run.yaml")["same"] == {"width": 8}
