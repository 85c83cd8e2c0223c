"""What Python shows of results, measures, image sets and runs: a table in print and in a notebook, numbers, a data frame."""

import dataclasses
import html
import pickle
import re
import subprocess
import sys

import numpy as np
import pytest
import torch

import antiphase as ap
from antiphase.attacks.changed_pixels import ChangedPixels
from antiphase.config import InputError
from antiphase.tables import WIDTH, interval_of, percent


@pytest.fixture(scope="module")
def test_images():
    return ap.load("digits", "test").subset(24, seed=1)  # ids that are not 0, 1, 2, ...


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    model = ap.ViTConfig(patch=2, width=16, heads=4, depth=2, attention=(ap.Differential(),))
    train, test = ap.load("digits", "train").subset(200), ap.load("digits", "test")
    return ap.train(model, ap.TrainConfig(epochs=2), train, test, tmp_path_factory.mktemp("runs") / "DiffViT")


@pytest.fixture(scope="module")
def objects(run, test_images):
    classifier = run.classifier()
    budgets = [ap.PGD(within=ap.Linf(f"{e}/255"), steps=3, restarts=2) for e in (48, 8, 16)]
    return {
        "result": ap.attack(classifier, test_images, budgets[0], protocol="paper"),
        "sweep": ap.sweep(classifier, test_images, budgets),
        "alignment": ap.branch_alignment(classifier, test_images, probes=4),
        "lipschitz": ap.l_sample(classifier, test_images, draws=2),
        "images": test_images,
        "run": run,
    }


KINDS = ("result", "sweep", "alignment", "lipschitz", "images", "run")


@pytest.mark.parametrize("kind", KINDS)
def test_print_and_a_notebook_show_the_same_short_table(objects, kind):
    shown = objects[kind]
    text, cells = str(shown), re.findall(r"<(?:td|th|caption)(?: [^>]*)?>(.*?)</", shown._repr_html_())
    assert len(text.splitlines()) < 25
    assert max(map(len, text.splitlines())) <= WIDTH
    words = text.split()
    for cell in cells:
        assert set(html.unescape(cell).split()) <= set(words)
    assert len(repr(shown)) < 300


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_run_read_or_copied_to_print(objects, kind, monkeypatch):
    def never(*_, **__):
        raise AssertionError("printing needs no pixels and no model")

    monkeypatch.setattr(ChangedPixels, "tensor", property(never))
    monkeypatch.setattr(ap.ImageSet, "batch", never)
    monkeypatch.setattr(ap.Run, "model", never)
    monkeypatch.setattr(torch.nn.Module, "__call__", never)
    assert str(objects[kind])
    assert repr(objects[kind])


def test_a_result_prints_each_rate_with_its_interval_hits_and_denominator(objects):
    result = objects["result"]
    rates = ap.success_rates(result)
    lines = {line.split()[0]: line for line in str(result).splitlines() if line.strip()}
    for name, rate in rates.items():
        assert f"{percent(rate)}  {interval_of(rate)}" in re.sub("  +", "  ", lines[name])
        assert re.search(rf" {rate['hits']}  +{rate['n']} ", lines[name])
    assert "48 images x restarts" in lines["asr_change"]  # of 24 images, the restarts of the paper's protocol apart
    assert "24 images" in lines["asr_union"]
    summary = result.summary()
    for name, rate in rates.items():
        assert {key: summary[name][key] for key in rate} == rate
        assert " of " in summary[name]["of"]


def test_a_sweep_has_a_row_for_each_budget_with_the_result_that_belongs_to_it(objects):
    sweep = objects["sweep"]
    assert [result.attack for result in sweep] == [f"PGD Linf {e}/255" for e in (8, 16, 48)]
    rows = [line for line in str(sweep).splitlines() if "PGD Linf" in line]
    for result, row, eps in zip(sweep, rows, (8, 16, 48), strict=True):
        assert percent(ap.success_rates(result)["asr_change"]) in row
        assert result.distance.max() <= eps / 255 + 1e-6
    assert isinstance(sweep, list)
    assert [part["attack"] for part in sweep.summary()] == [result.attack for result in sweep]


def test_a_data_frame_has_what_became_of_every_image_under_its_id(objects, test_images):
    result, sweep, alignment = objects["result"], objects["sweep"], objects["alignment"]
    frame = result.to_pandas()
    assert frame.image.tolist() == test_images.ids.tolist()
    for name in ("label", "clean_prediction", "adversarial_prediction", "success", "distance", "forwards"):
        tensor = getattr(result, "labels" if name == "label" else name)
        assert frame[name].tolist() == tensor.tolist()
    assert len(sweep.to_pandas()) == 3 * len(test_images)
    layers = alignment.to_pandas()
    assert len(layers) == sum(layer.cos.size for layer in alignment)
    joined = layers.merge(frame, on="image")  # each image of the one is an image of the other
    assert len(joined) == len(layers)
    first = layers[layers.layer == alignment[0].layer]
    assert np.allclose(first.cos, alignment[0].cos.ravel(), equal_nan=True)
    assert objects["lipschitz"].to_pandas().image.tolist() == 2 * test_images.ids.tolist()
    assert objects["images"].to_pandas()["class"].tolist() == [test_images.class_names[y] for y in test_images.labels]


def test_an_attack_of_stages_says_which_one_fooled_an_image_and_each_result_alone_has_a_name(run, test_images):
    attack = ap.MinimalL2(fmn=ap.FMN(steps=3), ddn=ap.DDN(steps=3), cw=ap.CW(searches=1, steps=3))
    best = ap.attack(run.classifier(), test_images, attack)
    assert [part.attack for part in best.alone] == list(best.stages)
    by = best.to_pandas().broken_by
    assert set(by.dropna()) <= set(best.stages)
    assert by.notna().tolist() == best.success.tolist()


def test_a_function_as_attack_goes_by_its_name_and_images_without_ids_by_their_places(run, test_images):
    def brighter(_, x, __):
        return (x + 0.5).clamp(0, 1)

    x, y, _ = test_images.all
    result = ap.attack(run.classifier(), x, y, brighter)
    assert str(result).startswith("brighter on 24 images")
    assert result.to_pandas().image.tolist() == list(range(24))


def test_a_result_survives_copies_and_pickles(objects):
    result = objects["result"]
    for copy in (dataclasses.replace(result), pickle.loads(pickle.dumps(result))):
        assert str(copy) == str(result)


def test_one_layer_prints_its_row_of_the_table_of_all(objects):
    layers = objects["alignment"]
    rows = [re.sub(" +", " ", line) for line in str(layers).splitlines() if "blocks." in line]
    assert len(rows) == len(layers) == 2
    for layer, row in zip(layers, rows):
        assert row in re.sub(" +", " ", str(layer))
        assert layer.summary()["layer"] == layer.layer


def test_a_thousand_classes_are_a_short_table_and_classes_of_one_name_stay_two():
    x = torch.zeros(4, 1, 2, 2)
    many = ap.ImageSet.of_tensors(x, torch.arange(4), [f"class {i}" for i in range(1000)])
    assert len(str(many).splitlines()) < 20
    assert "989 more classes" in str(many)
    cranes = ap.ImageSet.of_tensors(x, torch.tensor([0, 1, 1, 1]), ["crane", "crane"])
    assert [row["images"] for row in cranes.summary()["per_class"]] == [1, 3]


def test_a_run_says_its_accuracy_with_interval_and_what_was_asked_of_it(run, test_images):
    ap.attack_run(run, images=test_images, eps=["8/255", "16/255"])
    summary, last = run.summary(), run.log[-1]
    assert summary["accuracy"]["n"] == 360
    assert summary["accuracy"]["value"] == pytest.approx(last["test_accuracy"])
    assert summary["answers"]["attacks"] == 2
    assert f"{percent(summary['accuracy'])} {interval_of(summary['accuracy'])}, n = 360" in str(run)
    frame = run.to_pandas()
    assert frame.epoch.tolist() == [1, 2]
    assert frame["lambda model.blocks.1.attn"].iloc[-1] == last["lambda"]["model.blocks.1.attn"]


def test_a_run_that_cannot_be_read_prints_why(tmp_path):
    assert "there is no folder" in " ".join(str(ap.Run(tmp_path / "nowhere")).split())
    assert "there is no folder" in ap.Run(tmp_path / "nowhere")._repr_html_()
    with pytest.raises(InputError, match="there is no folder"):
        ap.Run(tmp_path / "nowhere").summary()


@pytest.mark.parametrize(("folder", "words"), [("pair/DiffViT", "10 classes"), ("clip-pair/CLIP", "by prompts")])
def test_committed_runs_print_themselves(folder, words, request):
    text = str(ap.Run(request.config.rootpath / "results" / folder))
    assert words in text
    assert "n = 10,000" in text


def test_without_pandas_one_sentence_names_the_remedy(objects, monkeypatch):
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(InputError, match=r"^to_pandas needs pandas, which is not installed: pip install pandas$"):
        objects["result"].to_pandas()


def test_measuring_shows_no_warning_of_torchs_own_code_and_hides_none_of_the_users(tmp_path):
    script = """
import torch, warnings
import antiphase as ap
model = ap.build(ap.ViTConfig(patch=2, width=16, heads=2, attention=(ap.Differential(),)), shape=(1, 8, 8), classes=10)
ap.branch_alignment(model, ap.load("digits", "test").subset(4), probes=2)
print("measured", flush=True)
torch.jit.script(torch.nn.ReLU())
warnings.warn("of the user", FutureWarning)
"""
    command = [sys.executable, "-W", "default", "-c", script]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=tmp_path, check=True
    )
    ours, _, theirs = done.stdout.partition("measured\n")
    assert "FutureWarning" not in ours
    assert theirs.count("`torch.jit.script` is deprecated") == 1
    assert "FutureWarning: of the user" in theirs
