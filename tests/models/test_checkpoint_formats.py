"""Published checkpoints: what their tensors show, and what is refused."""

import pytest
import torch

from antiphase.config import InputError
from antiphase.models.checkpoint_formats import read_clip, read_state
from tests.models.small_models import NOT_IN_TENSORS

TITLES = ["DiffCLIP", "CLIP", "DiffCLIP-dagger", "DiffCLIP-star"]


@pytest.mark.parametrize(("name", "title"), list(zip(NOT_IN_TENSORS, TITLES)))
def test_the_kind_of_clip_is_inferred_from_the_tensors(fixtures, name, title):
    config, _ = read_clip(fixtures / f"{name}.pt", **NOT_IN_TENSORS[name])
    assert config.title == title
    vision, text = config.vision, config.text
    assert (vision.image, vision.patch, vision.width, vision.depth, vision.heads) == (32, 8, 64, 3, 4)
    assert (text.context, text.vocabulary, text.width, text.depth, text.heads, config.joint) == (77, 1024, 48, 2, 4, 24)


def spoiled(fixtures, tmp_path, name="diffclip", **changes):
    """The fixture with tensors set anew, or removed where None."""
    state = {f"module.{k}": v for k, v in read_state(fixtures / f"{name}.pt").items()}
    for key, value in changes.items():
        state.pop(key) if value is None else state.update({key: value})
    torch.save({"state_dict": state}, tmp_path / "spoiled.pt")
    return tmp_path / "spoiled.pt"


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("module.visual.blocks.1.attn.k_proj.weight", None, "has no tensor visual.blocks.1.attn.k_proj.weight"),
        ("module.visual.pos_embed", None, "has no tensor visual.pos_embed"),
        ("module.head.weight", torch.zeros(2), "has a tensor head.weight that a DiffCLIP"),
        ("module.text_projection", torch.zeros(24, 48), r"text_projection has shape \(24, 48\), expected \(48, 24\)"),
        ("module.visual.pos_embed", torch.zeros(1, 16, 64), "visual.pos_embed has 16 rows"),
        ("module.token_embedding.weight", torch.zeros(4), "token_embedding.weight has shape"),
    ],
)
def test_a_checkpoint_with_missing_extra_or_misshapen_tensors_is_refused_by_name(fixtures, tmp_path, key, value, named):
    with pytest.raises(InputError, match=named):
        read_clip(spoiled(fixtures, tmp_path, **{key: value}))


@pytest.mark.parametrize(
    ("name", "told", "named"),
    [
        ("clip", {}, "give --heads"),
        ("clip", {"heads": 4}, "give --text-heads"),
        ("diffclip_vision_only", {}, "give --text-heads"),
        ("diffclip", {"heads": 4}, "--heads 4 is not needed"),
        ("clip", {"heads": 5, "text_heads": 4}, "heads=5 does not divide width=64"),
    ],
)
def test_what_no_tensor_shows_must_be_given_and_is_named(fixtures, name, told, named):
    with pytest.raises(InputError, match=named):
        read_clip(fixtures / f"{name}.pt", **told)


class Harmful:
    """A pickle that would run code."""

    def __reduce__(self):
        return (print, ("unpickled!",))


def test_arbitrary_pickled_code_is_not_run(tmp_path, capsys):
    torch.save({"state_dict": {}, "args": Harmful()}, tmp_path / "harmful.pt")
    with pytest.raises(InputError, match="print, and only tensors and plain values are read"):
        read_clip(tmp_path / "harmful.pt")
    assert "unpickled" not in capsys.readouterr().out


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut short"])
def test_a_damaged_file_gets_one_sentence(tmp_path, content):
    (tmp_path / "bad.pt").write_bytes(content)
    with pytest.raises(InputError, match=r"bad\.pt cannot be read"):
        read_clip(tmp_path / "bad.pt")


@pytest.mark.parametrize("held", [{"state_dict": {}}, {"state_dict": {"a": 1}}, [1, 2], {"a": torch.zeros(1)}])
def test_a_file_without_a_clip_gets_one_sentence(tmp_path, held):
    torch.save(held, tmp_path / "other.pt")
    with pytest.raises(InputError, match=r"holds no weights|has no tensor"):
        read_clip(tmp_path / "other.pt")
