"""antiphase audit: models from outside, alone and beside a baseline, kept and resumed."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import antiphase as ap
from antiphase.measures.stats import paired_rates
from antiphase.models.run import Run

FILE = """
from torch import nn
from timm.models.vision_transformer import VisionTransformer

def vit():
    sizes = {"img_size": 8, "patch_size": 2, "embed_dim": 64, "depth": 1, "num_heads": 4}
    return VisionTransformer(num_classes=10, in_chans=1, **sizes), "mean=0.5,std=0.5"

def three():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 3))

def no_gradient():
    class Model(nn.Linear):
        def forward(self, x):
            return super().forward(x.detach().flatten(1))
    return Model(64, 10)

def blind():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    nn.init.zeros_(model[1].weight)
    nn.init.constant_(model[1].bias[9:], 5.0)
    return model

def flat():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10)), {"mean": 0.5}
"""
FEW = ("--images", 12, "--quick", "--eps", "8/255,24/255", "--judge-steps", 5, "--judge-queries", 20, "--l2-steps", 5)
SMALL = (*FEW, "--judge-images", 8, "--l2-images", 4, "--measure-images", 4, "--look-images", 2, "--data", "digits")


@pytest.fixture(scope="module")
def model_file(tmp_path_factory, pair) -> Path:
    """A file of the user's with a ViT, beside it the weights of our own trained ViT under timm's names."""
    path = tmp_path_factory.mktemp("user") / "mine.py"
    path.write_text(FILE)
    weights = {name.removeprefix("model."): t for name, t in pair[0].model().state_dict().items()}
    save_file(weights, path.with_suffix(".safetensors"))
    return path


@pytest.fixture(scope="module")
def audited(model_file, pair, tmp_path_factory):
    """The user's ViT beside our DiffViT: the folder, and what the command printed as JSON."""
    import contextlib
    import io

    from antiphase.cli import main

    out, printed = tmp_path_factory.mktemp("audit") / "twins", io.StringIO()
    weights = ("--weights", model_file.with_suffix(".safetensors"))
    words = ("audit", f"{model_file}:vit", pair[1].folder, *weights, *SMALL, "--out", out, "--json")
    with contextlib.redirect_stdout(printed):
        assert main([str(word) for word in words]) == 0
    return out, json.loads(printed.getvalue()), words


def test_an_audit_of_a_users_model_is_that_of_the_run_it_is_equal_to(audited, pair, digits):
    """The user's file has the weights of our trained ViT: so the same images are fooled, to the last one."""
    from antiphase.attacks import PGD, Linf
    from antiphase.results.attack import attack_answers

    out, result, _ = audited
    mine = result["models"][0]
    run = Run(out / "models" / mine["name"])
    images = digits[1].at_most(12)
    attacks = [PGD(within=Linf(f"{e}/255"), steps=10) for e in (8, 24)]
    ours, theirs = (attack_answers(r, images, attacks, protocol="fast") for r in (pair[0], run))
    assert [a.fooled.tolist() for a in ours] == [a.fooled.tolist() for a in theirs]
    assert any(a.fooled.any() for a in ours)
    assert mine["pgd"][1]["rates"]["asr_correct"] == ours[1].content["rates"]["asr_correct"]
    assert mine["clean_accuracy"]["value"] == ap.accuracy(pair[0], images)


def test_an_audit_answers_everything_it_promises(audited):
    _, result, _ = audited
    vit, twin = result["models"]
    for model in (vit, twin):
        assert model["lipschitz"]["layers"]
        assert model["smallest_l2"]["correct"]["found"]["hits"] > 0
        assert model["look"]
        for row in model["judged"]:
            assert row["either"]["hits"] >= max(row["pgd"]["hits"], row["judge"]["hits"])  # the judge's success counts
    assert (vit["alignment"], vit["cancellation"], vit["lambda"]) == (None, None, [])
    assert twin["alignment"]["layers"]
    assert twin["cancellation"]["layers"]
    assert [row["least"] for row in twin["lambda"]] == [row["most"] for row in twin["lambda"]]
    assert vit["interventions"] is None
    none, *changed = twin["interventions"]["interventions"]
    assert [row["intervention"] for row in (none, *changed)] == ["none", "lam=0", "swap", "hold=A1", "hold=A2"]
    assert none["accuracy"]["n"] == twin["lipschitz"]["data"]["n"]
    shown = result["transfer"]["matrix"]
    assert shown[0][0]["transfer_fooled"]["value"] == 1.0  # what was made for a model fools it
    assert 0 <= shown[0][1]["transfer_correct"]["value"] <= 1
    pairs = result["comparison"]
    assert set(pairs) == {"by_pgd", "by_judge", "unequal"}
    for row in (*pairs["by_pgd"]["paired"], *pairs["by_judge"]["paired"]):
        low, high = row["difference"]["interval"]
        assert low <= row["difference"]["value"] <= high
    assert vit["preprocessing"] == twin["preprocessing"] == "mean=0.5,std=0.5"
    assert not any(note.startswith(("preprocessing", "width", "layers", "attention maps")) for note in pairs["unequal"])


def test_the_page_has_the_lens_the_judge_and_the_verdict(audited):
    out, result, _ = audited
    html = (out / "report" / "index.html").read_text()
    assert Path(result["page"]).is_file()
    assert "Judged by AutoAttack" in html
    assert result["comparison"]["by_judge"]["verdict"]["why"].split(",")[0] in html
    assert "Is it the subtraction?" in html
    assert "Images made for one model and shown to the other" in html
    assert "Images fooled" in html
    assert 'id="lens"' in html


def test_an_audit_that_is_asked_again_computes_nothing(audited, cli, monkeypatch):
    _, result, words = audited
    monkeypatch.setattr("antiphase.attacks.engine.run", lambda *_, **__: pytest.fail("it was attacked again"))
    code, out, _ = cli(*words)
    assert code == 0
    again = json.loads(out)
    assert again["models"] == result["models"]
    assert again["comparison"] == result["comparison"]


def test_other_commands_take_the_model_that_an_audit_opened(audited, cli):
    out, result, _ = audited
    folder = out / "models" / result["models"][0]["name"]
    code, printed, _ = cli("attack", folder, "--data", "digits", "--images", 8, "--eps", "24/255", "--json")
    assert code == 0
    assert json.loads(printed)["cells"][0]["model"] == "mine-vit"
    code, printed, _ = cli("measure", folder, "--data", "digits", "--images", 4, "--measures", "lipschitz", "--json")
    assert code == 0
    code, _, err = cli("attack", folder)
    assert code == 2
    assert "--data" in err


def test_a_model_without_attention_is_audited_and_the_page_says_why_there_is_no_lens(model_file, cli, tmp_path):
    code, printed, err = cli("audit", f"{model_file}:flat", "--no-weights", *SMALL, "--out", tmp_path / "a", "--json")
    assert code == 0, err
    (model,) = json.loads(printed)["models"]
    assert model["random_weights"]
    assert "no attention layer" in model["left_out"][0]["why"]
    assert model["lipschitz"] is None
    assert "no attention layer" in (tmp_path / "a" / "report" / "index.html").read_text()


def test_a_dry_run_says_how_long_it_takes_and_attacks_nothing(model_file, cli, tmp_path, monkeypatch):
    monkeypatch.setattr("antiphase.attacks.engine.run", lambda *_, **__: pytest.fail("it was attacked"))
    words = ("--no-weights", "--data", "digits", "--dry-run", "--out", tmp_path / "a")
    code, printed, err = cli("audit", f"{model_file}:vit", *words, "--json")
    assert code == 0
    said = json.loads(printed)
    assert said["seconds"] > said["quick_seconds"] > 0
    assert "about" in err
    assert not list(tmp_path.iterdir())


def contents(folder):
    return {path.relative_to(folder): path.is_file() and path.read_bytes() for path in folder.rglob("*")}


@pytest.mark.parametrize("factory", ["three", "no_gradient"])
def test_a_refused_audit_leaves_nothing_and_a_folder_that_was_there_as_it_was(model_file, cli, tmp_path, factory):
    """One is refused for its classes, the other when the first attack begins."""
    words = ("--data", "digits", "--preprocessing", "none", "--quick", "--out")
    assert cli("audit", f"{model_file}:{factory}", *words, tmp_path / "new" / "a")[0] == 2
    assert not list(tmp_path.iterdir())
    (tmp_path / "old" / "models").mkdir(parents=True)
    (tmp_path / "old" / "mine.txt").write_text("mine")
    before = contents(tmp_path)
    assert cli("audit", f"{model_file}:{factory}", *words, tmp_path / "old")[0] == 2
    assert contents(tmp_path) == before


def test_a_dry_run_of_a_baseline_beside_an_audit_that_is_kept_changes_nothing(audited, cli):
    out, _, words = audited
    before = contents(out)
    assert cli(*words, "--dry-run")[0] == 0
    assert cli("audit", words[1], f"{words[1].split(':')[0]}:flat", *words[3:], "--dry-run")[0] == 0
    assert cli("audit", words[1], f"{words[1].split(':')[0]}:three", "--preprocessing", "none", *words[3:])[0] == 2
    assert contents(out) == before


def test_a_dry_run_of_a_clip_keeps_no_texts_in_its_run(fixtures, cli, tmp_path, data_root):
    checkpoint = fixtures / "diffclip_cifar10.pt"
    assert cli("convert", checkpoint, tmp_path / "clip")[0] == 0
    before = contents(tmp_path)
    for model in (tmp_path / "clip", checkpoint):
        words = ("--data", "cifar10", "--data-root", data_root, "--prompts", "a", "--images", 4, "--dry-run")
        code, _, err = cli("audit", model, *words, "--out", tmp_path / "audit")
        assert code == 0, err
        assert contents(tmp_path) == before


def test_where_no_budget_fools_the_largest_is_judged_and_larger_ones_are_advised(audited, cli, tmp_path):
    _, _, words = audited
    small = ("--eps", "0.001/255,0.003/255,0.002/255", "--out", tmp_path / "a")
    result = json.loads(cli(*words, *small)[1])
    assert [row["eps"] * 255 for model in result["models"] for row in model["judged"]] == pytest.approx([0.003] * 2)
    assert result["models"][1]["interventions"]["eps"] * 255 == pytest.approx(0.003)
    advice = "PGD fooled no correctly classified image at any budget, the largest being 0.003/255: give larger --eps"
    assert advice in " ".join(cli(*words[:-1], *small)[1].split())
    assert advice in (tmp_path / "a" / "report" / "index.html").read_text()


def test_the_judged_budget_is_the_nearest_to_one_half_and_of_those_that_fool_none_the_largest():
    from antiphase.attacks.question import AttackAnswer
    from antiphase.config import Budget
    from antiphase.results.audit import _judge_eps
    from antiphase.results.questions import AuditConfig

    def judged(*fooled, named=()):
        curve = [
            AttackAnswer(
                {
                    "eps": eps / 255,
                    "images": {"label": [0] * 4, "clean": [0] * 4, "changed_in_run": [[1] * n + [0] * (4 - n)]},
                }
            )
            for eps, n in enumerate(fooled, start=1)
        ]
        return [
            round(255 * float(eps), 6) for eps in _judge_eps(AuditConfig(judge_eps=tuple(map(Budget, named))), [curve])
        ]

    assert judged(0, 0, 0) == [3]
    assert judged(0, 0, 4) == [2]
    assert judged(0, 1, 2, 4) == [3]
    assert judged(1, 3) == [1]
    assert judged(4, 4) == [1]
    assert judged(0, 0, 0, named=("1/255", "2/255")) == [1, 2]


def test_a_model_that_is_never_right_is_said_to_be_so(model_file, cli, tmp_path, digits):
    words = ("--preprocessing", "none", *SMALL, "--images", 4, "--out", tmp_path / "a")
    assert 9 not in digits[1].at_most(4).labels  # which the model always answers
    code, out, err = cli("audit", f"{model_file}:blind", *words)
    assert code == 0, err
    text = " ".join(out.split())
    assert "classifies none of the 4 images correctly on which it is judged, so there is nothing to fool" in text
    assert "fools undefined" not in text
    assert "give larger --eps" not in text


def test_the_lines_of_the_judge_name_the_model(audited, cli, tmp_path):
    _, result, words = audited
    code, _, err = cli(*words, "--judge-steps", 4, "--l2-steps", 4, "--out", tmp_path / "again")
    assert code == 0
    for model in result["models"]:
        assert f"{model['name']} Linf " in err
        assert f"{model['name']}: median of the smallest L2 after FMN: " in err
    said = [line for line in err.splitlines() if "robust accuracy after" in line or "median of the smallest" in line]
    assert said
    assert all(line.startswith(tuple(model["name"] for model in result["models"])) for line in said)


def test_the_function_does_what_the_command_does_with_a_module_in_memory(pair, digits, tmp_path):
    sizes = {
        "judge_steps": 3,
        "judge_queries": 10,
        "l2_steps": 3,
        "judge_images": 6,
        "measure_images": 2,
        "look_images": 1,
    }
    few, model = digits[1].at_most(8), pair[0].classifier()
    result = ap.audit(model, few, pair[1].classifier(), quick=True, eps=["24/255"], **sizes)
    assert "page" not in result
    assert [m["title"] for m in result["models"]] == ["Normalized", "Normalized"]
    assert result["models"][0]["clean_accuracy"]["value"] == ap.accuracy(model, few)
    kept = ap.audit(model, few, quick=True, eps=["24/255"], out=tmp_path / "kept", **sizes)
    assert kept["models"][0]["pgd"] == result["models"][0]["pgd"]
    assert Path(kept["page"]).is_file()


BAD = [
    (["audit"], "timm:NAME"),
    (["audit", "nowhere"], "no file or folder"),
    (["audit", "timm:test_vit"], "--data"),
    (["audit", "timm:test_vit", "--data", "cifra10"], "did you mean"),
    (["audit", "timm:test_vitt", "--data", "digits", "--no-weights"], "timm has no model"),
    (["audit", "timm:test_vit", "--data", "digits", "--no-weights"], "1000 classes"),
    (["audit", "timm:test_vit", "--data", "digits", "--weights", "none.pt"], "none.pt is not a file"),
    (["audit", "timm:test_vit", "--data", "digits", "--eps", "8"], "8/255"),
    (["audit", "timm:test_vit", "--data", "digits", "--eps", "0"], "above 0"),
    (["audit", "timm:test_vit", "--data", "digits", "--judge-eps", "8"], "8/255"),
    (["audit", "timm:test_vit", "--data", "digits", "--preprocessing", "imgnet"], "'imgnet'"),
    (["audit", "timm:test_vit", "--data", "digits", "--baseline-weights", "x.pt"], "no baseline"),
    (["audit", "timm:test_vit", "--data", "digits", "--out", "/dev/null"], "/dev/null is a file"),
    (["audit", "RUN", "RUN"], "its own baseline"),
    (["audit", "RUN", "--no-weights", "--weights", "x"], "x is not a file"),
    (["audit", "RUN", "--preprocessing", "imagenet"], "leave --preprocessing out"),
]


@pytest.mark.parametrize(("words", "named"), BAD, ids=lambda v: " ".join(v) if isinstance(v, list) else "")
def test_bad_input_gets_one_sentence_and_exit_code_2(words, named, cli, runs, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = cli(*(runs[1] if word == "RUN" else word for word in words))
    assert (code, out) == (2, "")
    assert named in err
    assert "Traceback" not in err
    assert not list(tmp_path.iterdir())  # not even the folder of a model


@pytest.mark.parametrize("name", ["my_vit.pth", "timm:vit_tiny_patch16_224"])
def test_other_commands_send_a_model_that_is_no_run_to_the_audit(name, cli, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("my_vit.pth").touch()
    code, _, err = cli("attack", name)
    assert code == 2
    assert "antiphase audit" in err


def test_the_interval_of_a_paired_difference_is_newcombes():
    """Newcombe 1998, paired data, method 10: 36 and 24 of 50 with 24 in common, and the degenerate cases."""
    first = np.array([1] * 36 + [0] * 14, bool)
    second = np.array([1] * 24 + [0] * 26, bool)
    low, high = paired_rates(first, second)["interval"]
    assert 0.1 < low < 0.24 < high < 0.4
    same = paired_rates(first, first)
    assert same["value"] == 0
    none = paired_rates(np.zeros(20, bool), np.zeros(20, bool))
    assert none["interval"][0] < 0 < none["interval"][1]
    assert paired_rates(first[:0], first[:0])["value"] is None


def test_a_set_of_image_files_is_read_as_it_is_needed(tmp_path, cli, monkeypatch):
    """A folder above the limit of the cache is streamed: no more images are decoded than are asked about."""
    from PIL import Image

    from antiphase.data import cache, decode

    for name in "ab":
        (tmp_path / "images" / name).mkdir(parents=True)
        for i in range(60):
            pixels = (torch.rand(8, 8, 3, generator=torch.Generator().manual_seed(i)) * 255).byte().numpy()
            Image.fromarray(pixels).save(tmp_path / "images" / name / f"{i}.png")
    monkeypatch.setattr(cache, "CACHE_LIMIT", 1)
    source = tmp_path / "pair.py"
    source.write_text(
        "from torch import nn\ndef make():\n    return nn.Sequential(nn.Flatten(), nn.Linear(192, 2)), 'none'\n"
    )
    seen, whole = set(), decode.FileSource.decode
    monkeypatch.setattr(decode.FileSource, "decode", lambda self, row: (seen.add(row), whole(self, row))[1])
    few = ("--images", 4, "--quick", "--image-size", 8, "--judge-images", 2, "--l2-images", 2, "--judge-steps", 2)
    more = ("--judge-queries", 5, "--l2-steps", 2, "--no-weights", "--out", tmp_path / "out", "--json")
    code, printed, err = cli("audit", f"{source}:make", "--data", tmp_path / "images", *few, *more)
    assert code == 0, err
    assert json.loads(printed)["models"][0]["judged"][0]["attacks"] == ["APGD", "Square"]  # two classes
    assert 0 < len(seen) <= 4


def test_a_folder_is_read_in_the_size_of_the_model_but_smaller_squares_of_one_size_as_they_are(tmp_path):
    """As named sets are: photographs are brought to it, CIFAR is enlarged by the model itself."""
    from antiphase.cli.flags import TestImages
    from tests.data.image_files import png

    for name in "ab":
        (tmp_path / "own" / name).mkdir(parents=True)
        for i in range(40):
            (tmp_path / "own" / name / f"{i}.png").write_bytes(png(6 * i, side=32))

    def shape(side, **flags):
        about = {"model": {"kind": "ForeignConfig"}, "title": "theirs", "source": {"side": side}}
        return TestImages(data=str(tmp_path / "own"), **flags).choose(about, seed=0).shape

    assert shape(48) == shape(224) == (3, 32, 32)
    assert shape(16) == (3, 16, 16)
    assert shape(48, image_size=40) == (3, 40, 40)
    (tmp_path / "own" / "a" / "photograph.png").write_bytes(png(0, side=300))
    assert shape(48) == (3, 48, 48)
