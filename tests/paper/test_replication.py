"""`make replication`: what it computes, in which order, and that rows can be asked again."""

from collections import Counter

from benchmarks.replication import BLOCKS, models

from antiphase.paper.questions import Ask, Train


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


def test_the_cpu_scale_comes_first_and_without_surrogates():
    assert [block.scale for block in BLOCKS[:2]] == ["cpu", "cpu"]
    first, everything = (block.cells() for block in BLOCKS[:2])
    assert {cell.key for cell in first} <= {cell.key for cell in everything}
    assert {cell.kind for cell in everything if not isinstance(cell, Ask)} <= {"Train", "Evaluate"}
