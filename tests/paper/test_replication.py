"""`make replication`: what it computes, in which order, and that rows can be asked again."""

import gzip
import shutil
import subprocess
from collections import Counter

from benchmarks.replication import (
    BLOCKS,
    LARGE,
    LEDGER,
    Block,
    models,
    regain,
    stage,
    verify,
    without_path_of_machine,
    without_weights,
)

from antiphase import files
from antiphase.models.run import Run
from antiphase.paper.execute import Workplace, run
from antiphase.paper.ledger import Ledger
from antiphase.paper.questions import Ask, Train
from antiphase.store import lies_at


def test_the_papers_own_setting_at_depth_1_is_25_models_of_cifar10_the_first_seed_first():
    (block,) = [block for block in BLOCKS if block.name == "paper, depth 1"]
    cells = block.cells()
    whole = [cell for cell in cells if isinstance(cell, Train) and cell.after is None]
    assert len(whole) == 25
    by_seed = Counter(model.training.seed for model in whole)
    assert by_seed == {0: 7, 1: 7, 2: 7, 3: 2, 4: 2}  # ViT and DiffViT x 5 seeds, five other lambda_init x 3
    assert [model.training.seed for model in whole[:7]] == [0] * 7
    for model in (model for cell in cells for model in models(cell)):
        assert (model.data, model.images, model.model.depth, model.model.width) == ("cifar10", None, 1, 192)
        training = model.training
        assert (training.epochs, training.batch_size, training.lr, training.keep_epochs) == (100, 128, 5e-4, (15, 35))
    on_train = {cell.of.after for cell in cells if isinstance(cell, Ask) and cell.images.split == "train"}
    assert on_train == {15, 35, None}


def test_no_committed_run_names_a_path_of_the_machine_that_trained_it(tmp_path):
    begun = [Run(path.parent) for path in LEDGER.glob("runs/*/run.json") if '"../' in path.read_text()]
    assert begun  # fine-tuned ones; Run reads the digests
    assert all((run.folder / run.about["training"]["start_from"]).resolve().is_dir() for run in begun)
    assert not [path for path in LEDGER.glob("runs/*/run.json") if '"start_from": "/' in path.read_text()]
    folder = tmp_path / "run"
    shutil.copytree(begun[0].folder, folder, ignore=shutil.ignore_patterns("attacks", "measures"))
    about = files.read_json(folder / "run.json")
    about["training"]["start_from"] = "/somewhere/else/abc"
    files.write_json(folder / "run.json", about)
    without_path_of_machine(folder)
    assert Run(folder).about["training"]["start_from"] == "../abc"
    assert files.read_json(folder / "checkpoint.json")["run"] == files.sha256(folder / "run.json")


def test_the_cpu_scale_comes_first_and_without_surrogates():
    assert [block.scale for block in BLOCKS[:5]] == ["cpu"] * 5
    first, then, claims, _, everything = (block.cells() for block in BLOCKS[:5])
    keys = {cell.key for cell in first}
    assert keys | {cell.key for cell in (*then, *claims)} <= {cell.key for cell in everything}
    assert {cell.key for cell in then if isinstance(cell, Train)} <= keys  # as its name says
    assert {cell.kind for cell in everything if not isinstance(cell, Ask)} <= {"Train", "Evaluate", "Ranking", "Chosen"}


def test_a_large_answer_is_committed_compressed_once_and_read_as_before(tmp_path):
    whole = Ledger(LEDGER)
    cell = next(
        cell
        for cell in BLOCKS[0].cells()
        if isinstance(cell, Ask) and cell.question.kind == "alignment" and whole.has(cell)
    )
    part, row = Ledger(tmp_path / "ledger"), whole.row(cell)
    answer = part.folder / row["kept"]["path"]
    answer.parent.mkdir(parents=True)
    answer.write_bytes(as_text(whole.folder / row["kept"]["path"]))
    part.rows.put(cell.key, row)
    part.check_data("toys", "test", "abc")
    assert answer.stat().st_size > LARGE
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True)
    assert part.damaged() == []
    assert stage(part) == stage(part) == 3  # the second time nothing changes
    staged = subprocess.run(["git", "ls-files"], cwd=part.folder, check=True, stdout=subprocess.PIPE, text=True).stdout
    assert staged.splitlines() == ["data.json", f"rows/{cell.key}.json", f"{row['kept']['path']}.gz"]
    assert not answer.exists()
    assert part.damaged() == []
    assert part.answer(row) == whole.answer(row)


def test_weights_that_are_not_in_git_are_trained_again_to_the_same_bits(tmp_path):
    cells = Block(name="small", scale="smoke", studies="fig1").cells()
    asked = next(cell for cell in cells if isinstance(cell, Ask))
    place = Workplace(Ledger(tmp_path), scale="smoke")
    assert not run([asked.of], place).failed
    assert without_weights([asked], place.ledger) == []
    (path,) = place.ledger.run_folder(asked.of.key).glob("weights-*")
    before = path.read_bytes()
    path.unlink()
    assert without_weights([asked], place.ledger) == [asked.of]
    regain(asked.of, place)
    assert path.read_bytes() == before
    assert without_weights([asked], place.ledger) == []


def test_a_row_that_cannot_be_asked_again_is_not_said_to_differ(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_DATA", str(tmp_path))
    (line,) = verify(Ledger(LEDGER), rows=1, seed=0)
    assert "not compared, since it failed: cifar" in line
    assert "differs" not in line


def as_text(path):
    there = lies_at(path)
    return gzip.decompress(there.read_bytes()) if there.suffix == ".gz" else there.read_bytes()
