"""Configs are data: they survive a round trip, and what cannot be used is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphase.attacks import L2, PGD, Linf
from antiphase.config import Budget, InputError, dump_yaml, fingerprint, from_plain, overlaid, read_yaml, to_plain
from antiphase.files import read_lines, write_lines, write_whole
from antiphase.models import Differential, Schedule, Softmax, ViTConfig
from antiphase.models.attention_syntax import attention_text, parse_attention
from antiphase.models.config import BoundedDifferential, DifferentialV2, Dint, GroupedDifferential, LowRankDifferential
from antiphase.training import TrainConfig

ATTENTIONS = [
    Softmax(),
    Differential(),
    Differential(lambda_init=0.5, out_scale="fixed"),
    Differential(lambda_init=(0.2, 0.4), learned=False, head_norm="none", out_scale="none"),
    Differential(lambda_init=Schedule(index_base=1)),
    Differential(lambda_init=Schedule(index_base=-1)),
    DifferentialV2(),
    GroupedDifferential(),
    GroupedDifferential(ratio=1, lambda_init=0.5),
    BoundedDifferential(),
    BoundedDifferential(bound=0.7, lambda_init=0.6),
    LowRankDifferential(rank=2),
    Dint(out_scale="fixed"),
    Differential(lambda_init=Schedule(a=0.9, b=0.5, c=0.1)),
]


def test_budgets_are_read_in_255ths():
    assert Budget("4/255") == 4 / 255
    assert Budget("0.5/255") == 0.5 / 255
    assert str(Budget(4 / 255)) == "4/255"
    assert str(Budget("0.25/255")) == "0.25/255"


@pytest.mark.parametrize("word", ["4/0", "4/255/2", "nan", "inf", "-1/255", "four", ""])
def test_a_bad_budget_is_named(word):
    with pytest.raises(InputError) as refusal:
        Budget(word)
    assert repr(word) in str(refusal.value)


def test_eight_meant_as_255ths_is_refused_with_the_hint():
    with pytest.raises(InputError, match=r"eps=8 is more than .*: did you mean 8/255\?"):
        Linf(8)


@pytest.mark.parametrize("word", ["300/255", "300", "511/510"])
def test_a_budget_above_the_pixel_range_that_was_not_meant_as_255ths_gets_no_such_hint(word):
    with pytest.raises(InputError, match=r"eps=.* is more than the whole pixel range, from 0 to 1: give at most 1"):
        Linf(word)


def test_a_budget_of_adversarial_training_is_refused_under_its_own_name_as_it_was_written():
    with pytest.raises(InputError, match="adv_eps=300/255 is more than"):
        TrainConfig(adv_eps="300/255")


@pytest.mark.parametrize("word", ["128/255", "0.5", "0.1", "2", "1.25"])
def test_an_l2_budget_is_shown_as_it_was_written(word):
    assert str(L2(Budget(word))) == f"L2 {word}"


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_attention_survives_its_one_word_notation(attention):
    assert parse_attention(attention_text(attention)) == attention


@pytest.mark.parametrize(
    ("word", "named"),
    [
        ("diff", "attention 'diff' is not known"),
        ("differential-v2:lambda_init=0.5", "differential-v2 has no options"),
        ("softmax:heads=2", "softmax has no options"),
        ("grouped:ratio=0.5", "ratio='0.5': it takes a whole number"),
        ("grouped:ratio=0", "ratio=0 must be at least 1"),
        ("dint:ratio=2", "no field 'ratio'"),
        ("differential:lambda_init=schedule/0.8/0.6/0.3/-2", "index_base=-2 must be at least -1"),
    ],
)
def test_attention_that_cannot_be_read_is_named(word, named):
    with pytest.raises(InputError, match=named):
        parse_attention(word)


def test_the_new_kinds_of_attention_leave_stored_keys_as_they_are():
    """Answers in the folders of runs are found by these."""
    config = ViTConfig(attention=(Differential(lambda_init=0.5), Softmax()), depth=2)
    assert fingerprint(config) == "2b1cef909ca3"
    assert to_plain(Differential()).keys() == {"kind", "lambda_init", "learned", "head_norm", "out_scale"}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: PGD(eps="8/255"), r"PGD has no argument 'eps': .*within=ap.Linf\('8/255'\)"),
        (lambda: PGD(within=Linf(0.1), step=3), "PGD has no argument 'step': did you mean steps?"),
        (lambda: PGD(Linf(0.1)), "PGD needs every argument by its name: it takes within, steps"),
        (lambda: PGD(), "PGD needs its 'within'"),
        (lambda: TrainConfig(epoch=3), "did you mean epochs?"),
        (lambda: ViTConfig(layers=3), "it takes width, depth"),
    ],
)
def test_an_argument_that_a_config_does_not_take_is_named_with_those_that_it_takes(made, said):
    with pytest.raises(InputError, match=said):
        made()


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_configs_survive_yaml(attention, tmp_path):
    config = ViTConfig(depth=2, heads=4, width=64, attention=(attention,))
    path = tmp_path / "model.yaml"
    path.write_text(dump_yaml(config))
    assert from_plain(ViTConfig, read_yaml(path)) == config


def test_an_attack_survives_the_round_trip():
    attack = PGD(within=Linf("4/255"), restarts=3)
    assert from_plain(PGD, to_plain(attack)) == attack


def test_a_renamed_field_keeps_its_name_and_key_in_files_and_is_read_under_both():
    attack = PGD(within=Linf("4/255"), restarts=3)
    plain = to_plain(attack)
    assert plain["runs"] == 3
    assert "restarts" not in plain
    plain["restarts"] = plain.pop("runs")
    assert from_plain(PGD, plain) == attack
    assert fingerprint(attack) == "c2b354e7793a"  # as before the field was renamed


@pytest.mark.parametrize(
    ("plain", "named"),
    [
        ({"widht": 3}, "'widht'"),
        ({"width": "wide"}, "'wide'"),
        ({"depth": True}, "True"),
        ({"init": "random"}, "'random'"),
        ({"attention": [{"kind": "Linear"}]}, "'Linear'"),
    ],
)
def test_a_wrong_field_is_named(plain, named):
    with pytest.raises(InputError) as refusal:
        from_plain(ViTConfig, plain)
    assert named in str(refusal.value)


def test_a_config_file_that_is_not_there_or_not_yaml_is_named(tmp_path):
    with pytest.raises(InputError, match=r"none\.yaml"):
        read_yaml(tmp_path / "none.yaml")
    (tmp_path / "bad.yaml").write_text("a: [")
    with pytest.raises(InputError, match=r"bad\.yaml is not YAML"):
        read_yaml(tmp_path / "bad.yaml")
    (tmp_path / "list.yaml").write_text("- 1")
    with pytest.raises(InputError, match=r"list\.yaml is not a config"):
        read_yaml(tmp_path / "list.yaml")


def test_a_file_changes_only_what_it_names():
    base = TrainConfig(epochs=3, lr=0.1)
    assert overlaid(base, {"lr": 0.2}, "training") == TrainConfig(epochs=3, lr=0.2)
    with pytest.raises(InputError, match="'learning_rate'"):
        overlaid(base, {"learning_rate": 0.2}, "training")


@given(st.integers(1, 64), st.floats(1e-6, 1.0))
def test_fingerprints_depend_on_values_and_nothing_else(epochs, lr):
    assert fingerprint(TrainConfig(epochs=epochs, lr=lr)) == fingerprint(TrainConfig(lr=lr, epochs=epochs))
    assert fingerprint(TrainConfig(epochs=epochs, lr=lr)) != fingerprint(TrainConfig(epochs=epochs + 1, lr=lr))


def test_a_write_that_fails_leaves_the_old_file(tmp_path):
    path = tmp_path / "kept.txt"
    path.write_text("old")

    def half(temporary):
        temporary.write_text("ne")
        raise RuntimeError("disk on fire")

    with pytest.raises(RuntimeError, match="disk on fire"):
        write_whole(path, half)
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_damaged_log_is_named(tmp_path):
    path = tmp_path / "log.jsonl"
    write_lines(path, [{"epoch": 1}])
    assert read_lines(path) == [{"epoch": 1}]
    with path.open("a") as file:
        file.write('{"epoch": 2, "lo')
    with pytest.raises(InputError, match=r"log\.jsonl, line 2, is not valid JSON"):
        read_lines(path)


def test_numbers_written_as_yaml_words_are_numbers(tmp_path):
    (tmp_path / "c.yaml").write_text("lr: 5e-4")
    assert from_plain(TrainConfig, read_yaml(tmp_path / "c.yaml")).lr == 5e-4


@pytest.mark.parametrize("bad", [float("nan"), float("inf"), float("-inf")])
def test_no_number_of_a_config_may_be_infinite_or_undefined(bad):
    for make in (
        lambda: ViTConfig(mlp_ratio=bad),
        lambda: ViTConfig(mean=bad),
        lambda: TrainConfig(lr=bad),
        lambda: TrainConfig(weight_decay=bad),
        lambda: TrainConfig(checkpoint_seconds=bad),
        lambda: Schedule(a=bad),
        lambda: PGD(within=Linf(0.1), step_size=bad),
    ):
        with pytest.raises(InputError, match=str(bad)):
            make()
