"""Models from outside: each source is built without a network, and the seam is what the library itself does."""

import json
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import open_clip
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from timm.models.vision_transformer import VisionTransformer
from torch import nn

from antiphase.config import InputError
from antiphase.data.imageset import ImageSet
from antiphase.models.classifier import as_classifier
from antiphase.models.foreign_config import NAMED, Preprocessing, as_preprocessing, read_source
from antiphase.models.open_model import agreement, open_model, run_of_module
from antiphase.models.preprocessing import Preprocessed, compare_with, resized
from antiphase.models.run import Run
from tests.models.foreign_models import transformers

TIMM = "timm:test_vit"  # timm's own tiny ViT: 160 pixels, 0.4 million parameters


@pytest.fixture(scope="module")
def photos(data_root) -> torch.Tensor:
    """(6, 3, 144, 192): real photographs of one size, as they were taken"""
    found = []
    for path in sorted((data_root / "oxford-iiit-pet-subset").rglob("*.jpg")):
        picture = Image.open(path).convert("RGB")
        if picture.size == (192, 144):
            found.append(torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8).reshape(144, 192, 3))
        if len(found) == 6:
            break
    return torch.stack(found).permute(0, 3, 1, 2).float() / 255


def image_set(pixels: torch.Tensor, classes: int) -> ImageSet:
    return ImageSet.of_tensors(pixels, torch.arange(len(pixels)) % classes, [f"class {i}" for i in range(classes)])


@pytest.fixture(scope="module")
def hf_folder(tmp_path_factory) -> Path:
    hf = transformers()
    folder = tmp_path_factory.mktemp("hf") / "tiny-vit"
    sizes = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 32}
    names = dict(enumerate(("tench, Tinca tinca", "goldfish", "great white shark")))
    torch.manual_seed(0)
    hf.ViTForImageClassification(hf.ViTConfig(**sizes, image_size=16, patch_size=8, id2label=names)).save_pretrained(
        folder
    )
    hf.ViTImageProcessor(size={"height": 16, "width": 16}).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def clip_arch(tmp_path_factory) -> str:
    """The name of a small architecture of open_clip, known to it in this process."""
    path = tmp_path_factory.mktemp("archs") / "tiny-clip.json"
    vision = {"image_size": 32, "layers": 2, "width": 24, "patch_size": 8, "head_width": 6}
    text = {"context_length": 77, "vocab_size": 49408, "width": 16, "heads": 2, "layers": 1}
    path.write_text(json.dumps({"embed_dim": 12, "vision_cfg": vision, "text_cfg": text}))
    open_clip.add_model_config(path)
    return path.stem


MODEL_FILE = """
import torch
from torch import nn

PREPROCESSING = "resize=20,crop=16,interpolation=bicubic,mean=0.5,std=0.25"

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 4, 4, 4), nn.Linear(4, 5)
    def forward(self, x):
        assert x.shape[1:] == (3, 16, 16)
        return {"features": x, "logits": self.head(self.conv(x).mean(dim=(2, 3)))}

def make():
    return Net()

def broken():
    raise KeyError("no such layer")

def nothing():
    return 3
"""


@pytest.fixture
def model_file(tmp_path) -> Path:
    path = tmp_path / "net.py"
    path.write_text(MODEL_FILE)
    return path


# ------------------------------------------------------------------------------------------------- every source


def test_a_timm_model_is_a_run_whose_preprocessing_is_timms_own(tmp_path, photos):
    run = open_model(TIMM, tmp_path, random=True)
    assert (run.config.classes, run.config.depth, run.config.heads) == (1000, 6, 2)
    assert run.config.preprocessing.crop == 160
    held = agreement(run, image_set(photos, 1000))
    assert held.mean < 1 / 255
    assert held.same_predictions == held.images == 6
    again = Run(run.folder)  # built once more, from what run.json says
    pixels = photos[:2]
    with torch.no_grad():
        assert torch.equal(again.classifier()(pixels), run.classifier()(pixels))


def test_weights_from_a_file_are_those_of_the_file_whatever_its_number_of_classes(tmp_path):
    import timm

    trained = timm.create_model("test_vit", num_classes=7).eval()
    save_file(trained.state_dict(), tmp_path / "mine.safetensors")
    torch.save({"state_dict": trained.state_dict()}, tmp_path / "mine.pth")
    x = torch.rand(2, 3, 160, 160)
    for name in ("mine.safetensors", "mine.pth"):
        run = open_model(
            TIMM, tmp_path / name[-3:], weights=tmp_path / name, preprocessing="none", shape=lambda: (3, 160, 160)
        )
        assert run.config.classes == 7
        with torch.no_grad():
            assert torch.equal(run.classifier()(x), trained(x))


def test_open_clip_classifies_by_prompts_of_the_images_classes(tmp_path, clip_arch, photos):
    run = open_model(f"open_clip:{clip_arch}", tmp_path, random=True)
    images = image_set(photos, 3)
    assert run.by_prompts
    assert run.config.depth == 2
    classifier = run.classifier_for(images)
    held = agreement(run, images)
    assert held.mean < 1 / 255
    model, clip = run.loaded, run.loaded.clip
    with torch.no_grad():
        theirs = torch.stack([agreement_transform(run)(picture(p)) for p in photos])
        features = nn.functional.normalize(clip.encode_image(theirs), dim=-1)
        words = model.class_embeddings(images.class_names, run.templates)
        expected = clip.logit_scale.exp() * features @ words.T
        assert (classifier(photos) - expected).abs().max() < 0.05 * expected.abs().max()
        assert torch.equal(classifier(photos).argmax(1), expected.argmax(1))


def agreement_transform(run):
    return open_clip.transform.image_transform_v2(
        open_clip.transform.PreprocessCfg(**run.loaded.clip.visual.preprocess_cfg), is_train=False
    )


def picture(pixels: torch.Tensor) -> Image.Image:
    return Image.fromarray((255 * pixels).round().byte().permute(1, 2, 0).numpy())


def test_a_hugging_face_folder_gives_its_own_logits_and_the_names_of_its_classes(tmp_path, hf_folder, photos):
    hf = transformers()
    for spec in (str(hf_folder), f"hf:{hf_folder}"):
        run = open_model(spec, tmp_path)
        assert run.config.class_names[1] == "goldfish"
        assert run.name == "tiny-vit"
    theirs = hf.AutoModelForImageClassification.from_pretrained(hf_folder)
    processor = hf.AutoImageProcessor.from_pretrained(hf_folder)
    with torch.no_grad():
        given = processor(images=[picture(p) for p in photos], return_tensors="pt")
        expected, ours = theirs(**given).logits, run.classifier()(photos)
    assert (ours - expected).abs().max() < 0.02 * expected.abs().max()
    assert agreement(run, image_set(photos, 3)).largest < 2 / 255


def test_images_of_some_of_a_models_classes_are_judged_among_these(tmp_path, hf_folder):
    run = open_model(str(hf_folder), tmp_path)
    images = ImageSet.of_tensors(torch.rand(2, 3, 16, 16), torch.tensor([0, 1]), ("great_white_shark", "tinca tinca"))
    all_logits, some = run.classifier()(images.all.pixels), run.classifier_for(images)(images.all.pixels)
    assert torch.equal(some, all_logits[:, [2, 0]])
    strangers = ImageSet.of_tensors(torch.rand(2, 3, 16, 16), torch.tensor([0, 1]), ("cat", "dog"))
    with pytest.raises(InputError, match=r"3 classes .* none called 'cat'"):
        run.answer_on(None, strangers, lambda _: {})


def test_a_hugging_face_clip_classifies_by_prompts(tmp_path):
    hf = transformers()
    small = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    text = small | {"vocab_size": 400, "max_position_embeddings": 24, "eos_token_id": 1, "bos_token_id": 0}
    config = hf.CLIPConfig(
        text_config=text, vision_config=small | {"image_size": 16, "patch_size": 8}, projection_dim=12
    )
    torch.manual_seed(0)
    model = hf.CLIPModel(config).eval()
    folder = tmp_path / "tiny-clip"
    model.save_pretrained(folder)
    hf.CLIPImageProcessor(size={"shortest_edge": 16}, crop_size={"height": 16, "width": 16}).save_pretrained(folder)
    letters = ["<s>", "</s>", *"abcdefghijklmnopqrstuvwxyz0123456789"]
    vocabulary = {word: i for i, word in enumerate([*letters, *(f"{c}</w>" for c in letters[2:])])}
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    hf.CLIPTokenizer(
        str(folder / "vocab.json"),
        str(folder / "merges.txt"),
        bos_token="<s>",
        eos_token="</s>",
        unk_token="</s>",
        pad_token="</s>",
    ).save_pretrained(folder)
    run = open_model(str(folder), tmp_path / "runs")
    images = ImageSet.of_tensors(torch.rand(3, 3, 16, 16), torch.tensor([0, 1, 0]), ("cat", "dog"))
    words = hf.AutoTokenizer.from_pretrained(folder)(
        ["a photo of cat", "a photo of dog"], padding="max_length", max_length=24, return_tensors="pt"
    )
    pixels = images.all.pixels
    mean, std = (
        torch.tensor(v).reshape(3, 1, 1) for v in (run.config.preprocessing.mean, run.config.preprocessing.std)
    )
    with torch.no_grad():
        expected = model(pixel_values=(pixels - mean) / std, input_ids=words["input_ids"]).logits_per_image
        assert torch.allclose(run.classifier_for(images)(pixels), expected, atol=1e-4)


def test_a_function_in_a_file_brings_weights_preprocessing_and_what_lies_beside_it(tmp_path, model_file):
    run = open_model(f"{model_file}:make", tmp_path, random=True)
    assert (run.name, run.config.classes, run.config.preprocessing.crop) == ("net-make-random", 5, 16)
    assert "no attention layer" in run.config.no_lens
    weights = {name: torch.randn_like(t) for name, t in run.model().state_dict().items()}
    save_file(weights, tmp_path / "mine.safetensors")
    mine = open_model(f"{model_file}:make", tmp_path, weights=tmp_path / "mine.safetensors")
    assert torch.equal(mine.model().state_dict()["conv.weight"], weights["conv.weight"])
    assert mine.weights_digest != run.weights_digest
    model_file.write_text(MODEL_FILE + "\n# another model\n")
    with pytest.raises(InputError, match="not named to antiphase here as it is now"):
        Run(mine.folder).classifier()


def test_a_diffclip_checkpoint_becomes_a_run(tmp_path, fixtures):
    run = open_model(str(fixtures / "diffclip.pt"), tmp_path)
    assert run.config.title == "DiffCLIP"
    assert (tmp_path / "diffclip" / "checkpoint.json").is_file()
    assert open_model(str(run.folder), tmp_path).folder == run.folder


# ------------------------------------------------------------------------------------------------- refusals


def refusal(call) -> str:
    with pytest.raises(InputError) as refused:
        call()
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ("timm:vit_smoll_patch16", "timm has no model"),
        ("timm:", "names no model"),
        ("open_clip:ViT-B-99/openai", "open_clip has no model"),
        ("open_clip:ViT-B-32", "names no weights"),
        ("open_clip:ViT-B-32/opnai", "open_clip has no weights 'opnai' of ViT-B-32: did you mean openai"),
        ("open_clip:ViT-B32/openai", "open_clip has no model 'ViT-B32': did you mean ViT-B-32"),
        ("timm:vit_tinny_patch16_224", "timm has no model 'vit_tinny_patch16_224': did you mean vit_tiny_patch16_224"),
        ("nowhere", "no file or folder here"),
        ("nowhere.py:make", "is not a file"),
        ("FILE", "name the function"),
        ("FILE:two words", "names no function"),
        ("FILE:absent", "has no function 'absent'; there are"),
        ("FILE:broken", "failed: KeyError"),
        ("FILE:nothing", "returned a int"),
        ("FOLDER", "without run.json"),
    ],
)
def test_what_is_no_model_is_refused_in_one_sentence(spec, sentence, model_file, tmp_path):
    named = spec.replace("FILE", str(model_file)).replace("FOLDER", str(tmp_path))
    assert sentence in refusal(lambda: open_model(named, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    "spec", ["timm:test_vit.r160_in1k", "open_clip:ViT-B-32/laion2b_s34b_b79k", "hf:google/vit-base-patch16-224"]
)
def test_weights_that_are_missing_offline_are_refused_with_what_to_do(spec, tmp_path, monkeypatch):
    if spec.startswith("hf"):
        transformers()
    monkeypatch.setattr("antiphase.models.sources.is_offline", lambda: True)
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "empty"))
    said = refusal(lambda: open_model(spec, tmp_path / "out"))
    assert "cannot be reached from here" in said
    assert "--weights" in said
    assert not (tmp_path / "out").exists()


def test_unknown_preprocessing_is_refused_with_the_flag_that_states_it(tmp_path, model_file):
    model_file.write_text(MODEL_FILE.replace("PREPROCESSING", "SOMETHING_ELSE"))
    said = refusal(lambda: open_model(f"{model_file}:make", tmp_path, random=True))
    assert "--preprocessing" in said
    stated = open_model(f"{model_file}:make", tmp_path, random=True, preprocessing="resize=16x16,mean=0.1/0.2/0.3")
    assert stated.config.preprocessing == Preprocessing(resize=(16, 16), mean=(0.1, 0.2, 0.3))


def test_a_checkpoint_of_weights_alone_is_refused_with_how_to_name_its_model(tmp_path):
    torch.save({"head.weight": torch.zeros(2, 2)}, tmp_path / "my_vit.pth")
    assert "timm:NAME --weights" in refusal(lambda: open_model(str(tmp_path / "my_vit.pth"), tmp_path / "out"))


def test_a_pickle_with_code_in_it_is_never_run(tmp_path, model_file):
    class Trap:
        def __reduce__(self):
            return Path(tmp_path / "sprung").touch, ()

    with (tmp_path / "trap.pth").open("wb") as file:
        pickle.dump({"state_dict": Trap()}, file)
    torch.save({"state_dict": Trap()}, tmp_path / "trap2.pth")
    for name in ("trap.pth", "trap2.pth"):
        assert "cannot be read" in refusal(
            lambda name=name: open_model(f"{model_file}:make", tmp_path / "out", weights=tmp_path / name)
        )
    assert not (tmp_path / "sprung").exists()


def test_code_in_a_hugging_face_folder_is_never_run(tmp_path, hf_folder):
    folder = tmp_path / "remote"
    shutil.copytree(hf_folder, folder)
    config = json.loads((folder / "config.json").read_text())
    code = {"AutoConfig": "theirs.Config", "AutoModelForImageClassification": "theirs.Model"}
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "unheard-of", "auto_map": code}))
    (folder / "theirs.py").write_text(f"open({str(tmp_path / 'sprung')!r}, 'w')\n")
    refusal(lambda: open_model(str(folder), tmp_path / "out"))
    assert not (tmp_path / "sprung").exists()


def test_weights_that_do_not_fit_are_refused_by_the_tensors_name(tmp_path, model_file):
    save_file({"conv.weight": torch.zeros(4, 3, 4, 4)}, tmp_path / "some.safetensors")
    weights = tmp_path / "some.safetensors"
    assert "no tensor conv.bias" in refusal(lambda: open_model(f"{model_file}:make", tmp_path / "out", weights=weights))


def test_naming_a_source_loads_nothing_heavy():
    code = "import sys; from antiphase.models.foreign_config import read_source; read_source('timm:x'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not {"torch", "timm", "open_clip", "transformers"} & set(done.stdout.split())


def test_weights_and_no_weights_exclude_each_other(tmp_path):
    (tmp_path / "w.pt").touch()
    with pytest.raises(InputError, match="exclude each other"):
        read_source("timm:test_vit", weights=tmp_path / "w.pt", random=True)


# ------------------------------------------------------------------------------------------------- preprocessing


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(64, 48), (48, 64), (33, 33), (200, 90)])
def test_the_seam_resizes_and_crops_as_torchvision_does_with_a_picture(photos, interpolation, size):
    from torchvision.transforms import v2

    how = Preprocessing(resize=40, crop=36, interpolation=interpolation, mean=(0.5, 0.4, 0.3), std=(0.2, 0.3, 0.4))
    modes = {"nearest": "NEAREST", "bilinear": "BILINEAR", "bicubic": "BICUBIC"}
    theirs = v2.Compose(
        [
            v2.Resize(40, getattr(v2.InterpolationMode, modes[interpolation])),
            v2.CenterCrop(36),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(how.mean, how.std),
        ]
    )
    images = photos[:3, :, : size[0], : size[1]]
    seam = Preprocessed(nn.Identity(), how)
    held = compare_with(theirs, seam, lambda x: x.flatten(1), images)
    assert held.mean < (1 if interpolation != "nearest" else 0.01) / 255


def test_a_wrong_preprocessing_is_an_error_and_not_a_remark(photos):
    from torchvision.transforms.functional import to_tensor

    seam = Preprocessed(nn.Identity(), Preprocessing(resize=64, crop=48))
    with pytest.raises(InputError, match=r"gives images of \(3, 48, 48\)"):
        compare_with(to_tensor, seam, lambda x: x.flatten(1), photos[:2])
    with pytest.raises(InputError, match="more than 1/255"):
        compare_with(
            to_tensor, Preprocessed(nn.Identity(), Preprocessing(mean=0.1)), lambda x: x.flatten(1), photos[:2]
        )


def test_gradients_reach_the_pixels_that_were_given():
    seam = Preprocessed(nn.Identity(), NAMED["imagenet"])
    pixels = torch.rand(1, 3, 300, 280, requires_grad=True)
    seam(pixels).sum().backward()
    assert (pixels.grad[0, :, 120:180, 120:180] > 0).all()
    assert pixels.grad[0, :, 0, 0].abs().sum() == 0  # cropped away


def test_words_of_preprocessing_are_read_as_they_are_written():
    for how in (*NAMED.values(), Preprocessing(resize=(3, 4), antialias=False, std=(0.1, 0.2, 0.3))):
        assert as_preprocessing(str(how)) == how
    assert resized(torch.rand(1, 3, 4, 4), Preprocessing(crop=8)).shape == (1, 3, 8, 8)


@pytest.mark.parametrize(
    "words",
    ["imgnet", "resize=big", "crop=0", "std=0", "size=3", "interpolation=lanczos", "antialias=maybe", 3, {"mean": "x"}],
)
def test_preprocessing_that_cannot_be_is_refused(words):
    refusal(lambda: as_preprocessing(words))


# ------------------------------------------------------------------------------------------------- as_classifier


class Answers(nn.Module):
    """Returns its logits in one of the shapes that people's models return."""

    def __init__(self, wrap) -> None:
        super().__init__()
        self.head, self.wrap = nn.Linear(12, 3), wrap

    def forward(self, x):
        return self.wrap(self.head(x.flatten(1)))


@pytest.mark.parametrize(
    "wrap",
    [
        lambda z: z,
        lambda z: (z, None),
        lambda z: [z],
        lambda z: {"logits": z, "loss": None},
        lambda z: type("Output", (), {"logits": z})(),
    ],
)
def test_logits_are_found_in_whatever_a_model_returns(wrap):
    model, x = Answers(wrap).eval(), torch.rand(2, 3, 2, 2)
    classifier = as_classifier(model, "mean=0.5,std=0.5")
    assert torch.equal(classifier(x), model.head(((x - 0.5) / 0.5).flatten(1)))
    assert list(classifier.parameters()) == list(model.parameters())
    assert torch.equal(as_classifier(lambda p: model(p), "none")(x), model.head(x.flatten(1)))


@pytest.mark.parametrize(
    "wrap", [lambda z: {"scores": z}, lambda _: None, lambda _: (None,), lambda z: z.sum(), lambda z: z[None]]
)
def test_an_output_without_logits_is_refused_in_one_sentence(wrap):
    assert "no logits" in refusal(lambda: as_classifier(Answers(wrap), "none")(torch.rand(2, 3, 2, 2)))


def test_a_model_of_timm_knows_its_preprocessing_and_another_must_say_it():
    import timm

    assert as_classifier(timm.create_model("test_vit").eval()).preprocessing.crop == 160
    assert "--preprocessing" in refusal(lambda: as_classifier(nn.Linear(3, 3)))
    assert "is no model" in refusal(lambda: as_classifier(3))
    assert "the class Linear is no model" in refusal(lambda: as_classifier(nn.Linear))


def test_a_module_in_memory_is_a_run_while_it_lives(tmp_path):
    vit = VisionTransformer(img_size=16, patch_size=8, embed_dim=24, depth=2, num_heads=4, num_classes=3).eval()
    images = ImageSet.of_tensors(torch.rand(4, 3, 16, 16), torch.tensor([0, 1, 2, 0]))
    run = run_of_module(vit, tmp_path / "vit", images, "none")
    assert (run.config.depth, run.config.heads, run.config.width) == (2, 4, 24)
    assert run_of_module(vit, tmp_path / "vit", images, "none").weights_digest == run.weights_digest
    assert "another model" in refusal(
        lambda: run_of_module(
            Answers(lambda z: z).eval(), tmp_path / "vit", ImageSet.of_tensors(torch.rand(2, 3, 2, 2)), "none"
        )
    )
    assert "no other can load" in refusal(lambda: Run(run.folder).classifier_for(images))
    assert "train mode" in refusal(lambda: run_of_module(vit.train(), tmp_path / "x", images, "none"))


def test_a_folder_cannot_make_us_run_code_that_the_user_has_not_named(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path / "cache"))
    code = tmp_path / "model.py"
    code.write_text(
        "import pathlib, torch\n"
        f"pathlib.Path({str(tmp_path / 'ran')!r}).write_text('x')\n"
        "PREPROCESSING = 'none'\n"
        "def factory():\n    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(192, 5))\n"
    )
    named = open_model(f"{code}:factory", tmp_path / "mine", shape=lambda: (3, 8, 8))
    assert Run(named.folder).loaded is not None  # the user named it: its folder may be opened again
    (tmp_path / "ran").unlink()
    monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path / "another user"))
    with pytest.raises(InputError, match=r"built by running .*model\.py, which was not named"):
        Run(named.folder).classifier()
    assert not (tmp_path / "ran").exists()
    monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path / "cache"))
    code.write_text(code.read_text() + "# changed\n")
    with pytest.raises(InputError, match="as it is now"):
        Run(named.folder).classifier()
    assert not (tmp_path / "ran").exists()
