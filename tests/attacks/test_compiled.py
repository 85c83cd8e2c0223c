"""torch.compile is how an attack runs, not what it finds; and it is used only where it pays."""

import json

import pytest
import torch

from antiphase.attacks import PGD, Linf, compiled, engine
from antiphase.attacks.compiled import compiling_pays, forwards_at_most
from antiphase.data import load
from antiphase.models.run import Run
from tests.conftest import ROOT

PAIR = ROOT / "results" / "pair"
ATTACK = PGD(within=Linf("1/255"), steps=10)


@pytest.fixture(scope="module")
def images(data_root):
    return load("cifar10", "test", root=data_root)


def test_auto_compiles_a_long_evaluation_and_no_short_one():
    """The sweep of the benchmarks over 512 images is short; nothing is timed."""
    grid = [PGD(within=Linf(f"{e}/255"), steps=20) for e in (0.25, 0.5, 1, 2, 4)]
    image = torch.zeros(1, 3, 32, 32)
    for name, long in (("DiffViT", 200_000), ("DiffViT-depth4", 10_000)):
        model = Run(PAIR / name).classifier()
        for n, pays in ((512, False), (long, True)):
            assert compiling_pays(model, image, sum(forwards_at_most(attack, n) for attack in grid)) is pays
        assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_small_attacks_stay_eager(cli, pair):
    code, out, _ = cli("attack", pair[1].folder, "--eps", "7/255", "--images", "70", "--json")
    assert code == 0
    assert [cell["compiled"] for cell in json.loads(out)["cells"]] == [False]


def test_without_a_compiler_the_attack_runs_all_the_same(pair, digits, monkeypatch, capsys):
    def fails(*_, **__):
        def call(_):
            raise RuntimeError("no g++ here")

        return call

    compiled._warn.cache_clear()
    monkeypatch.setattr(compiled.torch, "compile", fails)
    x, y, ids = digits[1].subset(96).all
    model, kept = pair[1].classifier(), {"ids": ids, "batch_size": 32}
    results = [engine.run(model, x, y, PGD(within=Linf("12/255")), compile=c, **kept) for c in ("always", "never")]
    engine.run(model, x, y, PGD(within=Linf("12/255")), compile="always", **kept)
    assert not results[0].compiled
    assert torch.equal(results[0].adversarial, results[1].adversarial)
    assert capsys.readouterr().err.count("warning: torch.compile failed (RuntimeError") == 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["ViT", "DiffViT", "DiffViT-depth4"])
def test_compiled_and_eager_attacks_give_the_same_verdicts(name, images):
    """All of it on real images, compiled once for two runs; the model and the global stream are left as they were."""
    model, (x, y, ids) = Run(PAIR / name).classifier(), images.subset(160).all
    state, before = torch.get_rng_state(), {k: v.clone() for k, v in model.state_dict().items()}
    torch._dynamo.utils.counters.clear()
    for rows in (slice(0, 96), slice(64, 160)):
        args = (model, x[rows], y[rows], ATTACK)
        fast, eager = (
            engine.run(*args, ids=ids[rows], batch_size=32, compile=choice) for choice in ("always", "never")
        )
        assert (fast.compiled, eager.compiled) == (True, False)
        for field in ("success", "adversarial_prediction", "changed_in_restart", "forwards", "backwards"):
            assert torch.equal(getattr(fast, field), getattr(eager, field)), field
        assert fast.flags == eager.flags
        assert (fast.adversarial != eager.adversarial).double().mean() < 0.01
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(v, before[k]) for k, v in model.state_dict().items())
    assert not any("forward" in vars(m) for m in model.modules())


@pytest.mark.slow
def test_a_compiled_evaluation_says_so_in_its_row(cli, pair):
    flags = ("--eps", "5/255,9/255", "--images", "96", "--json")
    cells = json.loads(cli("attack", pair[1].folder, *flags, "--compile", "always")[1])["cells"]
    assert [cell["compiled"] for cell in cells] == [True, True]
