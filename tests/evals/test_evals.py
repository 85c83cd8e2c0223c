"""Evaluation: what is printed is what a reader computes by hand, with scikit-learn, or by brute force."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from PIL import Image
from sklearn.linear_model import LogisticRegression

from antiphase import files, runtime
from antiphase.config import InputError, to_plain
from antiphase.data import load
from antiphase.data.pair_catalog import load_pairs
from antiphase.data.readers.mmvp import load_mmvp
from antiphase.evals import features as features_module
from antiphase.evals.config import GROUPS, EvalConfig, expand_groups, tasks_on
from antiphase.evals.evaluate import evaluate
from antiphase.evals.features import Encoder, class_token
from antiphase.evals.few_shot import episodes, few_shot_rows
from antiphase.evals.mmvp import TEMPLATE, statement_rows
from antiphase.evals.probe import LabelledFeatures, cost_grid, held_out, probe_rows
from antiphase.evals.published import VALUES, check_published, published
from antiphase.evals.retrieval import retrieval_rows
from antiphase.evals.rows import per_class
from antiphase.evals.zero_shot import zero_shot_rows
from antiphase.measures.stats import mean_of, wilson
from antiphase.measures.success import accuracy
from antiphase.models import Differential
from antiphase.models.clip import CLIP
from antiphase.models.clip_config import CLIPConfig, TextConfig, VisionConfig, preset
from antiphase.models.run import Run, save_checkpoint
from antiphase.models.tokenizer import encode
from antiphase.models.zero_shot import class_embeddings
from tests.data.trees import TREES, mmvp

SMALL = CLIPConfig(  # reads bytes: no vocabulary to load
    vision=VisionConfig(image=16, patch=8, width=32, depth=2, heads=4, attention=(Differential(),)),
    text=TextConfig(width=16, depth=1, heads=2, vocabulary=259, tokenizer="bytes"),
    joint=16,
)


def clip_run(folder, config=SMALL, **data) -> Run:
    about = {"title": config.title, "model": to_plain(config), "training": {}, "data": data}
    files.write_json(folder / "run.json", {"format": 1, **about, "environment": runtime.environment()})
    save_checkpoint(folder, {"weights": CLIP(config).state_dict()}, {"complete": True}, tag="fresh")
    return Run(folder)


@pytest.fixture(scope="module")
def clip(tmp_path_factory) -> Run:
    return clip_run(tmp_path_factory.mktemp("clip"))


def clusters(n, classes=4, width=4, noise=1.0, seed=0):
    """Features that a probe can learn from, but not perfectly."""
    draw = np.random.default_rng(seed)
    centres = np.random.default_rng(99).normal(size=(classes, width))
    labels = draw.integers(0, classes, n)
    return LabelledFeatures((centres[labels] + noise * draw.normal(size=(n, width))).astype(np.float32), labels)


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


def by_name(rows):
    return {row.name: row for row in rows}


# ------------------------------------------------------------------------------------------------- retrieval


@pytest.mark.parametrize("captions", [[5] * 30, [1] * 30, [1, 2, 7, 3, 5] * 6])
def test_recall_is_what_brute_force_finds_in_both_directions(captions):
    draw = np.random.default_rng(0)
    images, owner = draw.normal(size=(30, 6)), np.repeat(np.arange(30), captions)
    texts = images[owner] + 1.2 * draw.normal(size=(len(owner), 6))
    found = by_name(retrieval_rows(torch.from_numpy(images), torch.from_numpy(texts), captions, "images"))
    cosine = unit(texts) @ unit(images).T
    for k in (1, 5, 10):
        nearest_images = np.argsort(-cosine, axis=1)[:, :k]
        hits = [owner[j] in nearest_images[j] for j in range(len(owner))]
        assert found[f"image retrieval R@{k}"].value == pytest.approx(np.mean(hits))
        assert found[f"image retrieval R@{k}"].n == len(owner)
        nearest_texts = np.argsort(-cosine.T, axis=1)[:, :k]
        hits = [i in owner[nearest_texts[i]] for i in range(30)]
        assert found[f"text retrieval R@{k}"].value == pytest.approx(np.mean(hits))
        assert found[f"text retrieval R@{k}"].interval == pytest.approx(wilson(np.mean(hits), 30))
    assert 0 < found["image retrieval R@1"].value < 1


def test_embeddings_that_have_collapsed_find_nothing():
    rows = retrieval_rows(torch.ones(30, 4), torch.ones(150, 4), [5] * 30, "images")
    assert [row.value for row in rows] == [0] * 6


def test_captions_of_one_image_are_not_counted_as_independent():
    images = torch.eye(20)
    alike = retrieval_rows(images, images.repeat_interleave(5, 0)[:, torch.randperm(20)], [5] * 20, "images")
    low, high = by_name(alike)["image retrieval R@1"].interval
    assert high - low > 0.9 * np.subtract(*wilson(alike[0].value, 20)[::-1])  # as wide as that of 20 trials, not of 100


# ------------------------------------------------------------------------------------------------- zero-shot


def test_zero_shot_from_kept_features_is_the_classifier_that_is_attacked(clip, data_root):
    images = load("cifar10", "test", root=data_root, image_size=16).subset(80)
    encoder = Encoder(clip, keep=False)
    rows = zero_shot_rows(
        encoder.embeddings(images),
        clip.class_embeddings(encoder.clip, images),
        torch.from_numpy(images.labels),
        "images",
    )
    assert rows[0].value == pytest.approx(accuracy(clip.classifier_for(images), images))
    assert rows[0].interval == pytest.approx(wilson(rows[0].value, 80))
    assert by_name(rows)["zero-shot, per class"].value == pytest.approx(rows[0].value)  # the subset is balanced


def test_many_templates_are_averaged_and_normalised_again(clip, data_root, tmp_path):
    images = load("cifar10", "test", root=data_root, image_size=16)
    (tmp_path / "two.txt").write_text("a photo of {}\nnothing but {}\n")
    both = replace(clip, prompts=str(tmp_path / "two.txt")).class_embeddings(clip.model(), images)
    model = clip.model()
    with torch.no_grad():
        texts = [
            F.normalize(
                model.encode_text(model.tokenize([template.replace("{}", name) for name in images.class_names])), dim=-1
            )
            for template in ("a photo of {}", "nothing but {}")
        ]
    assert torch.allclose(both, F.normalize((texts[0] + texts[1]) / 2, dim=-1), atol=1e-6)


def test_top_five_by_hand():
    classes = torch.eye(7)
    images = torch.tensor([[1, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4]]).repeat(3, 1)
    rows = by_name(zero_shot_rows(images, classes, torch.tensor([0, 4, 5]), "images"))
    assert rows["zero-shot"].value == pytest.approx(1 / 3)
    assert rows["zero-shot, top 5"].value == pytest.approx(2 / 3)


# ------------------------------------------------------------------------------------------------- linear probe


def test_a_probe_is_scikit_learns_with_the_cost_that_was_best_on_validation():
    train, validation, test = clusters(120, seed=1), clusters(60, seed=2), clusters(200, seed=3)
    config = EvalConfig(costs=5)
    (row, _), chosen = probe_rows(train, validation, test, config, "images")
    scores = {}
    for cost in np.logspace(-6, 6, 5):
        fitted = LogisticRegression(C=cost, max_iter=1000).fit(train.features.astype(float), train.labels)
        scores[float(cost)] = fitted.score(validation.features.astype(float), validation.labels)
    assert dict(map(tuple, chosen["validation"])) == pytest.approx(scores)
    best = max(scores, key=scores.get)
    assert chosen["C"] == best
    assert not chosen["at_the_edge"]
    both = [np.concatenate([getattr(part, field) for part in (train, validation)]) for field in ("features", "labels")]
    final = LogisticRegression(C=best, max_iter=1000).fit(both[0].astype(float), both[1])
    assert row.value == pytest.approx(final.score(test.features.astype(float), test.labels))
    assert row.n == 200
    assert row.interval == pytest.approx(wilson(row.value, 200))
    assert 0.4 < row.value < 1


def test_without_a_published_validation_split_a_fifth_of_every_class_is_held_out():
    labels = np.repeat([0, 1, 2, 3], [50, 10, 2, 1])
    chosen = held_out(labels, seed=0)
    assert [int(chosen[labels == c].sum()) for c in range(4)] == [10, 2, 1, 0]  # a lone image stays with training
    assert np.array_equal(chosen, held_out(labels, seed=0))
    assert not np.array_equal(chosen, held_out(labels, seed=1))
    train, test = clusters(100, seed=1), clusters(50, seed=2)
    later = held_out(train.labels, 0)
    config = EvalConfig(costs=3)
    whole = probe_rows(train, None, test, config, "images")
    split = probe_rows(train.take(~later), train.take(later), test, config, "images")
    assert whole[1]["validation"] == split[1]["validation"]
    assert whole[0][0].value == pytest.approx(split[0][0].value)


def test_the_grid_is_clips():
    assert len(cost_grid(96)) == 96
    assert (cost_grid(96)[0], cost_grid(96)[-1]) == (1e-6, 1e6)
    steps = np.diff(np.log10(cost_grid(96)))
    assert np.allclose(steps, steps[0])


def test_classes_count_the_same_where_the_protocol_says_so():
    right, labels = np.array([True, True, True, False, True, False]), np.array([0, 0, 0, 0, 2, 2])
    row = per_class("x", right, labels, "")
    assert row.value == pytest.approx((0.75 + 0.5) / 2)
    assert row.interval == pytest.approx(wilson(row.value, 4 / (1 / 4 + 1 / 2)))
    even = per_class("x", right, np.array([0, 0, 0, 1, 1, 1]), "")
    assert even.interval == pytest.approx(wilson(4 / 6, 6))
    (first, second), _ = probe_rows(
        clusters(60), None, clusters(60, seed=5), EvalConfig(costs=2), "images", by_class=True
    )
    assert (first.name, second.name) == ("linear probe", "linear probe, all images")
    assert "mean over the classes" in first.of


def test_an_interrupted_search_goes_on_where_it_was(tmp_path, monkeypatch):
    from antiphase.evals import probe

    fits, real = [], probe.fit

    def fit(data, cost, iterations):
        if len(fits) == 2:
            raise KeyboardInterrupt
        fits.append(cost)
        return real(data, cost, iterations)

    train, test, config = clusters(60), clusters(60, seed=5), EvalConfig(costs=4)
    expected = probe_rows(train, None, test, config, "images")
    monkeypatch.setattr(probe, "fit", fit)
    with pytest.raises(KeyboardInterrupt):
        probe_rows(train, None, test, config, "images", keep=tmp_path / "kept.json")
    fits[:] = [0] * 10
    assert probe_rows(train, None, test, config, "images", keep=tmp_path / "kept.json") == expected
    assert fits[10:13] == [*cost_grid(4)[2:], expected[1]["C"]]


def test_a_probe_of_one_class_is_refused():
    one = LabelledFeatures(np.zeros((4, 2), np.float32), np.zeros(4, np.int64))
    with pytest.raises(InputError, match="training images of two classes at least, and those of things are of one"):
        probe_rows(one, None, one, EvalConfig(), "things")


# ------------------------------------------------------------------------------------------------- few-shot


def test_an_episode_by_hand():
    """Two classes of two training images: the centroids are (1, 0) and (0, 1) and every query can be read off."""
    train = np.array([[3, 0], [1, 0], [0, 1], [0, 5]], np.float32)
    test = np.array([[2, 1], [1, 2], [1, 9], [9, 1]], np.float32)
    config = EvalConfig(ways=2, shots=2, queries=2)
    found = episodes(train, np.array([0, 0, 1, 1]), test, np.array([0, 0, 1, 1]), config)
    assert len(found) == 1000
    assert set(found) == {0.5}  # (2, 1) and (1, 9) are right, (1, 2) and (9, 1) are not


def test_episodes_are_nearest_centroids_by_cosine_and_belong_to_their_number():
    train, test = clusters(200, classes=8, noise=2, seed=1), clusters(200, classes=8, noise=2, seed=2)
    config = EvalConfig(episodes=1000)
    parts = train.features, train.labels, test.features, test.labels
    found = episodes(*parts, config)
    assert np.array_equal(found, episodes(*parts, replace(config, episodes=1500))[:1000])
    assert not np.array_equal(found, episodes(*parts, replace(config, seed=1)))
    for i in (0, 7):
        draw = np.random.default_rng([0, i])
        classes = draw.choice(8, 5, replace=False)
        shown = [draw.choice(np.flatnonzero(train.labels == c), 5, replace=False) for c in classes]
        asked = [draw.permutation(np.flatnonzero(test.labels == c))[:6] for c in classes]
        centroids = [unit(np.mean([unit(train.features[r]) for r in rows], axis=0)) for rows in shown]
        right = [
            int(np.argmax([unit(test.features[r]) @ centre for centre in centroids])) == place
            for place, rows in enumerate(asked)
            for r in rows
        ]
        assert found[i] == pytest.approx(np.mean(right))
    (row,) = few_shot_rows(*parts, config, "images")
    assert row.value == pytest.approx(found.mean())
    half = 1.96234 * found.std(ddof=1) / math.sqrt(1000)  # Student's t with 999 degrees of freedom
    assert row.interval == pytest.approx((row.value - half, row.value + half), abs=1e-6)
    assert row.chance == 0.2


def test_centering_takes_away_what_all_features_share():
    train, test = clusters(200, classes=8, seed=1), clusters(200, classes=8, seed=2)
    values = {}
    for center in (False, True):
        for offset in (0, 8):
            parts = train.features + offset, train.labels, test.features + offset, test.labels
            (row,) = few_shot_rows(*parts, EvalConfig(center=center), "images")
            values[center, offset] = row.value
    assert values[True, 0] == pytest.approx(values[True, 8], abs=0.001)
    assert values[False, 0] != pytest.approx(values[False, 8], abs=0.01)
    assert "centered" in row.of


def test_too_few_classes_for_an_episode_are_refused():
    few = clusters(40, classes=4)
    with pytest.raises(
        InputError, match="4 classes have 5 training images and a test image: episodes of 5 classes need as many"
    ):
        episodes(few.features, few.labels, few.features, few.labels, EvalConfig())


# ------------------------------------------------------------------------------------------------- MMVP


def test_a_pair_counts_only_if_both_are_told_apart():
    images = torch.eye(2).repeat(4, 1)  # four pairs: image 0 is (1, 0), image 1 is (0, 1)
    texts = torch.tensor(
        [
            [[0.9, 0.1], [0.1, 0.9]],  # everything right
            [[0.1, 0.9], [0.9, 0.1]],  # everything wrong
            [[0.9, 0.4], [0.8, 0.6]],  # both images, not both statements: the second is nearer to image 0
            [[0.9, 0.1], [0.9, 0.1]],  # a tie
        ]
    ).reshape(8, 2)
    rows = by_name(statement_rows(images, texts, ("Color", "Color", "Texts", "Texts")))
    assert rows["mmvp: Color"].value == 0.5
    assert rows["mmvp: Texts"].value == 0.5
    assert rows["mmvp"].value == 0.5
    assert rows["mmvp, by statement: Texts"].value == 0
    assert rows["mmvp, by statement"].value == 0.25
    assert rows["mmvp"].chance == 0.25
    assert rows["mmvp: Color"].interval == pytest.approx(wilson(0.5, 2))


def test_the_mean_of_sets_has_the_interval_of_independent_parts():
    value, (low, high) = mean_of([(0.5, wilson(0.5, 1000)), (0.7, wilson(0.7, 1000))])
    assert value == pytest.approx(0.6)
    draw = np.random.default_rng(0)
    means = (draw.binomial(1000, 0.5, 20000) + draw.binomial(1000, 0.7, 20000)) / 2000
    assert (low, high) == pytest.approx(tuple(np.quantile(means, (0.025, 0.975))), abs=0.002)
    one = mean_of([(0.3, wilson(0.3, 50))])
    assert one[1] == pytest.approx(wilson(0.3, 50))


# ------------------------------------------------------------------------------------------------- features


def test_the_feature_is_what_the_head_and_the_projection_read(clip, pair, digits, data_root):
    run, images = pair[1], digits[1].subset(8)
    model = run.classifier()
    with torch.no_grad():
        assert torch.allclose(
            model.model.head(class_token(model, images.all.pixels)), model(images.all.pixels), atol=1e-5
        )
    photographs = load("cifar10", "test", root=data_root, image_size=16).subset(70)
    with torch.no_grad():
        expected = clip.model().encode_image(photographs.all.pixels)
    assert torch.allclose(Encoder(clip, keep=False).embeddings(photographs), expected, atol=1e-5)


def test_features_are_computed_once_for_a_model_and_its_data(digits, pair, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path))
    monkeypatch.setattr(features_module, "FILE_ROWS", 16)
    images, calls = digits[1].subset(40), []
    real = features_module.class_token
    monkeypatch.setattr(features_module, "class_token", lambda *a: calls.append(1) or real(*a))
    Encoder(pair[0], keep=False).class_tokens(images)
    assert not list(tmp_path.rglob("*"))
    first = Encoder(pair[0]).class_tokens(images)
    kept = sorted(tmp_path.rglob("*.safetensors"))
    assert len(kept) == 3
    before = len(calls)
    assert torch.equal(Encoder(pair[0]).class_tokens(images), first)
    assert len(calls) == before
    kept[1].write_bytes(kept[1].read_bytes()[:-1] + b"\x07")  # damaged, then cut off
    assert torch.equal(Encoder(pair[0]).class_tokens(images), first)
    kept[1].write_bytes(kept[1].read_bytes()[:40])
    assert torch.equal(Encoder(pair[0]).class_tokens(images), first)
    assert len(calls) == before + 2
    assert not torch.equal(Encoder(pair[1]).class_tokens(images), first)  # other weights
    assert not torch.equal(Encoder(pair[0]).class_tokens(digits[1].subset(40, seed=1)), first)  # other images


def test_features_of_a_killed_evaluation_are_not_computed_again(digits, pair, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path))
    monkeypatch.setattr(features_module, "FILE_ROWS", 16)
    images, real, calls = digits[1].subset(40), features_module.class_token, []

    def dies(model, pixels):
        calls.append(len(pixels))
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(model, pixels)

    monkeypatch.setattr(features_module, "class_token", dies)
    with pytest.raises(KeyboardInterrupt):
        Encoder(pair[0]).class_tokens(images)
    found = Encoder(pair[0]).class_tokens(images)
    assert calls == [16, 16, 16, 8]
    assert torch.equal(found, Encoder(pair[0], keep=False).class_tokens(images))


# ------------------------------------------------------------------------------------------------- what the paper prints


def test_the_published_means_are_those_of_the_published_numbers():
    for (row, data, pretraining, title), value in VALUES.items():
        if data in GROUPS:
            parts = [VALUES[row, name, pretraining, title] for name in GROUPS[data]]
            assert value == pytest.approx(np.mean(parts), abs=0.071), (row, pretraining, title)  # one is off by 0.067
    assert published("linear probe", "pets", "CC12M", "DiffCLIP") == {"value": 83.0}
    assert published("image retrieval R@5", "flickr30k", "CC3M", "CLIP") == {"value": 31.8}
    assert published("zero-shot", "imagenet-r", "CC12M", "DiffCLIP") == {"gain": 3.3}
    assert published("zero-shot", "ood", "CC12M", "CLIP") is None
    assert published("image retrieval R@1", "coco", "CC12M", "CLIP") is None


def test_only_a_published_model_gets_published_numbers():
    for title in ("CLIP", "DiffCLIP", "DiffCLIP-dagger", "DiffCLIP-star"):
        check_published(preset("B/16", title), "x")
    for other in (
        SMALL,
        preset("L/14", "DiffCLIP"),
        preset("B/16").with_attention(preset("B/16").vision.attention[0], Differential()),
    ):
        with pytest.raises(InputError, match="x is no published model: --published is for a converted B/16 checkpoint"):
            check_published(other, "x")


# ------------------------------------------------------------------------------------------------- the command


def test_what_a_set_is_for(tmp_path):
    assert tasks_on("cifar10", (), text=True) == ("zero-shot", "probe", "few-shot")
    assert tasks_on("cifar10", (), text=False) == ("probe", "few-shot")
    assert tasks_on("imagenet", (), text=True) == ("zero-shot",)
    assert tasks_on("imagenet-a", (), text=True) == ("zero-shot",)
    assert tasks_on("coco", (), text=True) == ("retrieval",)
    assert tasks_on("coco", ("zero-shot",), text=True) == ("zero-shot",)
    assert tasks_on("mmvp", (), text=True) == ("pairs",)
    assert expand_groups(("ood", "imagenet-a", "cifar10")) == (*GROUPS["ood"], "cifar10")
    assert expand_groups((str(tmp_path),)) == (str(tmp_path),)


def test_a_vit_is_probed_on_digits_and_the_second_time_read(cli, pair):
    words = ["eval", pair[1].folder, "--on", "digits", "--costs", 3]
    code, out, err = cli(*words, "--json")
    assert code == 0, err
    result = json.loads(out)
    rows = {row["name"]: row for row in result["rows"]}
    assert rows["linear probe"]["value"] > 0.8
    assert rows["few-shot"]["value"] > 0.8
    assert rows["linear probe"]["n"] == 64
    assert rows["linear probe"]["published"] is None
    assert cli(*words, "--json")[1] == out  # seconds and all: from the cells
    kept = sorted((pair[1].folder / "evals").glob("*.json"))
    assert [json.loads(path.read_text())["task"] for path in kept].count("probe") == 1
    code, table, _ = cli(*words)
    assert "linear probe on digits: right, of 64 digits test images after 500 training images" in table
    assert "published" not in table


def test_a_clip_retrieves_real_captions(clip, cli, data_root):
    code, out, err = cli("eval", clip.folder, "--on", "flickr8k", "--images", 50, "--data-root", data_root, "--json")
    assert code == 0, err
    rows = {row["name"]: row for row in json.loads(out)["rows"]}
    pairs = load_pairs("flickr8k", "test", root=data_root, image_size=16).subset(50)
    model = clip.model()
    with torch.no_grad():
        image = F.normalize(model.encode_image(pairs.pixels(np.arange(50))), dim=-1)
        text = F.normalize(torch.cat([model.encode_text(model.tokenize(list(c))) for c in pairs.captions]), dim=-1)
    nearest = (text @ image.T).topk(10).indices
    hits = (nearest == torch.arange(50).repeat_interleave(5)[:, None]).any(dim=1)
    assert rows["image retrieval R@10"]["value"] == pytest.approx(hits.float().mean().item(), abs=1 / 250)
    assert rows["image retrieval R@10"]["n"] == 250
    assert rows["text retrieval R@10"]["n"] == 50
    text_config = clip.config.text
    cut = sum(len(encode(t, text_config.tokenizer)) > text_config.context for c in pairs.captions for t in c)
    (cell,) = json.loads(out)["cells"]
    assert cell["settings"].get("captions cut", 0) == cut
    assert (f"{cut:,} captions cut to the {text_config.context} tokens" in rows["text retrieval R@10"]["of"]) == (
        cut > 0
    )


def test_what_is_left_out_of_captions_is_counted_in_the_cell_and_said(clip, cli, tmp_path, data_root):
    photographs = tmp_path / "own" / "Flicker8k_Dataset"
    photographs.mkdir(parents=True)
    for i in range(3):
        Image.new("RGB", (16, 16), (80 * i,) * 3).save(photographs / f"{i}.png")
    lines = [f"{i}.png#0\tpicture number {i}" for i in range(4)]
    (tmp_path / "own" / "Flickr8k.token.txt").write_text("\n".join(lines))
    words = ["eval", clip.folder, "--on", tmp_path / "own", "--split", "all", "--data-root", data_root]
    code, _, err = cli(*words)
    assert code == 2
    assert "--allow missing" in err
    code, out, err = cli(*words, "--allow", "missing", "--json")
    assert code == 0, err
    assert json.loads(out)["cells"][0]["settings"]["skipped"] == {"missing": 1}
    assert "left out of own: 1 images that are not there" in cli(*words, "--allow", "missing")[1]


def test_classes_that_are_the_same_once_cut_are_refused(clip):
    template = "x" * 400 + " {}"
    with pytest.raises(InputError, match="are the same once cut to the"):
        class_embeddings(clip.model(), ("cat", "dog"), (template,))


def test_a_clip_is_asked_in_the_words_it_was_trained_with(clip, cli, tmp_path, data_root):
    own = clip_run(tmp_path / "own", templates=["a small picture of {}"])
    words = ["--on", "cifar10", "--tasks", "zero-shot", "--images", 20, "--data-root", data_root, "--json"]
    asked = {}
    for run, more in ((clip, []), (own, []), (own, ["--prompts", "a"])):
        code, out, err = cli("eval", run.folder, *words, *more)
        assert code == 0, err
        asked[run.name, *more] = json.loads(out)["cells"][0]["prompts"]
    assert list(asked.values()) == ["paper", "own", "a"]


def test_ood_and_mmvp_from_their_trees_with_the_mean_of_the_four(clip, cli, tmp_path):
    for name in GROUPS["ood"]:
        TREES[name](tmp_path)
    mmvp(tmp_path)
    code, out, err = cli("eval", clip.folder, "--on", "ood,mmvp", "--data-root", tmp_path, "--json")
    assert code == 0, err
    rows = json.loads(out)["rows"]
    top1 = {row["data"]: row for row in rows if row["name"] == "zero-shot"}
    assert set(top1) == {*GROUPS["ood"], "ood"}
    assert top1["ood"]["value"] == pytest.approx(np.mean([top1[name]["value"] for name in GROUPS["ood"]]))
    assert "among 200 classes" in top1["imagenet-r"]["of"]
    assert "among 1,000 classes" in top1["imagenet-sketch"]["of"]
    assert {row["name"] for row in rows if row["data"] == "mmvp"} >= {"mmvp", "mmvp: Texts", "mmvp, by statement"}
    text, statements = clip.config.text, load_mmvp(root=tmp_path, image_size=16).images.captions
    cut = sum(len(encode(TEMPLATE.format(said), text.tokenizer)) > text.context for (said,) in statements)
    (cell,) = [cell for cell in json.loads(out)["cells"] if cell["task"] == "pairs"]
    assert cell["settings"].get("captions cut", 0) == cut
    assert all(("captions cut" in row["of"]) == (cut > 0) for row in rows if row["data"] == "mmvp")


def test_published_numbers_stand_beside_ours(clip, monkeypatch, cli, tmp_path):
    """Of a model that is taken for the published one: its weights are not to be had here."""
    from antiphase.evals import evaluate

    mmvp(tmp_path)
    words = ["eval", clip.folder, "--on", "mmvp", "--data-root", tmp_path, "--published", "CC12M"]
    code, _, err = cli(*words)
    assert code == 2
    assert "is no published model" in err
    monkeypatch.setattr(evaluate, "check_published", lambda *_: None)
    monkeypatch.setattr(CLIPConfig, "title", "DiffCLIP")
    code, out, err = cli(*words)
    assert code == 0, err
    assert [line for line in out.splitlines() if "mmvp, by statement " in line and "27.6 %" in line]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        ("VIT --on flickr8k", "is a DiffViT, which has no text tower: retrieval on flickr8k needs a CLIP"),
        ("VIT --on digits --tasks zero-shot", "which has no text tower: zero-shot on digits needs a CLIP"),
        (
            "VIT --on cifar10",
            "takes images of 1 x 8 x 8, and those of cifar10 are 3 x 8 x 8: this run looks at grey images",
        ),
        ("VIT --on cifra10", "there is no data set 'cifra10' to evaluate on: did you mean 'cifar10'?"),
        ("VIT --on digits --tasks probing", "task 'probing' is not known: --tasks takes zero-shot, probe"),
        ("VIT --on digits --tasks retrieval", "--tasks retrieval is for none of digits"),
        ("VIT --on digits --costs 1", "costs=1 must be at least 2"),
        ("VIT --on digits --episodes 10", "episodes=10 must be at least 1000"),
        ("VIT --on digits,mmvp", "mmvp is not below"),
        ("CLIP --on digits", "a CLIP looks at colour images"),
        ("nowhere --on digits", "nowhere is not a run"),
    ],
)
def test_what_cannot_be_evaluated_is_refused_in_one_sentence(words, sentence, cli, clip, pair, data_root):
    known = {"VIT": pair[1].folder, "CLIP": clip.folder}
    code, out, err = cli("eval", *(known.get(word, word) for word in words.split()), "--data-root", data_root)
    assert (code, out) == (2, "")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_damaged_run_leaves_no_cell(tmp_path, data_root):
    run = clip_run(tmp_path / "run")
    (weights,) = run.folder.glob("*.safetensors")
    weights.write_bytes(weights.read_bytes()[:-1] + b"\x00")
    with pytest.raises(InputError, match="is damaged or was altered"):
        evaluate(run, ["cifar10"], ("zero-shot",), EvalConfig(), root=data_root, images=20, keep=False)
    assert not (run.folder / "evals").exists()
