"""An attack that is interrupted, even by SIGKILL in the middle of a write, goes on with the examples that have not ended."""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from copy import deepcopy

import pytest
import torch
from safetensors.torch import load_file

from antiphase.attacks import APGD, FAB, L2, PGD, AutoAttack, Linf, Square, engine
from antiphase.attacks.journal import unpack
from antiphase.config import InputError, fingerprint
from antiphase.files import seal
from antiphase.models.run import Run
from tests.attacks.harness import Counted, Returns, Stairs, assert_same, interrupted, looked_at, run
from tests.attacks.shortened import TO_BE_KILLED, shortened
from tests.conftest import ROOT


def attacked(model, few, attack, journal=None, **options):
    return run(model, few, attack, **{"batch_size": 16, "journal": journal, **options})


CASES = {
    "fast": (PGD(within=Linf("12/255"), restarts=2), {}),
    "paper": (PGD(within=Linf("12/255"), restarts=3, steps=8), {"protocol": "paper"}),
    "eight bits": (PGD(within=L2(0.8), steps=30), {"eight_bit": True}),
    "target": (PGD(within=Linf("32/255"), target="random"), {}),
    "by target": (APGD(within=Linf("12/255"), steps=8, loss="dlr-targeted", targets=3), {}),
    "boundary": (FAB(within=Linf("12/255"), steps=20), {}),
    "no gradients": (Square(within=Linf("24/255"), queries=40), {}),
}


@pytest.mark.parametrize("case", CASES)
def test_an_interrupted_attack_ends_as_if_it_had_not_been_interrupted(case, victim, few, tmp_path):
    attack, options = CASES[case]
    whole = Counted(victim)
    expected = attacked(whole, few, attack, **options)
    journal = tmp_path / "part.journal"
    for calls in (40, 45):  # twice: what was taken over is not written again
        interrupted(victim, few, attack, journal, calls, **options)
    known = [json.loads(line)["id"] for line in journal.read_text().splitlines()[1:]]
    assert 0 < len(known) == len(set(known)) < 96
    rest = Counted(victim)
    assert_same(attacked(rest, few, attack, journal, **options), expected)
    assert rest.images < whole.images - 2 * len(known)
    after = Counted(victim)
    assert_same(attacked(after, few, attack, journal, **options), expected)
    assert after.images == looked_at(attack) + 96 + 16 + int(
        expected.success.sum()
    )  # clean predictions and judgements: no example is attacked again


def test_red_flags_survive_an_interruption(victim, few, tmp_path):
    model, attack = Stairs(victim), PGD(within=Linf("4/255"), steps=5)
    expected = attacked(model, few, attack)
    assert len(expected.flags) >= 2
    interrupted(model, few, attack, tmp_path / "journal", 25)
    assert attacked(model, few, attack, tmp_path / "journal").flags == expected.flags


def test_a_record_torn_at_any_byte_is_cut_off(victim, few, tmp_path):
    attack = PGD(within=Linf("12/255"), steps=5)
    journal = tmp_path / "journal"
    expected = attacked(victim, few, attack, journal)
    written, draw = journal.read_bytes(), random.Random(0)
    lines = written.splitlines(keepends=True)
    for cut in (0, 1, len(lines[0]) - 1, len(written) - 1, *(draw.randrange(len(written)) for _ in range(4))):
        journal.write_bytes(written[:cut])
        assert_same(attacked(victim, few, attack, journal), expected)
        now = journal.read_bytes().splitlines()
        assert sorted(json.loads(line).get("id", -1) for line in now) == sorted([-1, *few.ids.tolist()])


def test_a_file_that_is_no_journal_is_refused_and_stays_as_it_was(victim, few, tmp_path):
    path = tmp_path / "precious.txt"
    for content in ("years of work\n", '{"id": 1}\n{"id": 2}\n', "{"):
        path.write_text(content)
        if content == "{":  # the torn beginning of a journal
            run(victim, few, PGD(within=Linf("8/255"), steps=2), journal=path)
            assert path.stat().st_size > 100
            return
        with pytest.raises(InputError, match="journal"):
            run(victim, few, PGD(within=Linf("8/255"), steps=2), journal=path)
        assert path.read_text() == content


def test_the_journal_of_another_attack_is_refused(victim, few, tmp_path):
    attacked(victim, few, PGD(within=Linf("12/255"), steps=2), tmp_path / "journal")
    with pytest.raises(InputError, match="journal of another attack"):
        attacked(victim, few, PGD(within=Linf("13/255"), steps=2), tmp_path / "journal")
    with pytest.raises(InputError, match="of our own attacks only"):
        attacked(victim, few, lambda model, x, y: x, tmp_path / "journal")  # noqa: ARG005


def test_a_sweep_keeps_a_journal_of_each_budget(victim, few, tmp_path):
    attacks = [PGD(within=Linf(f"{eps}/255"), steps=2) for eps in (4, 12)]
    first, again = (
        engine.sweep(victim, few.pixels, few.labels, attacks, ids=few.ids, journal=tmp_path / "sweep") for _ in range(2)
    )
    assert len(list(tmp_path.glob("sweep-*"))) == 2
    for one, two in zip(first, again):
        assert torch.equal(one.adversarial, two.adversarial)


def test_the_journal_of_another_model_or_of_other_images_is_refused(victim, few, tmp_path):
    attack, path = PGD(within=Linf("12/255"), steps=2), tmp_path / "journal"
    expected = attacked(victim, few, attack, path)
    weights = deepcopy(victim)
    with torch.no_grad():
        next(weights.parameters()).flatten()[0] += 1e-3  # too little for any prediction
    buffer = deepcopy(victim)
    buffer.mean += 1e-4
    other = {
        "weights": (weights, few),
        "a buffer": (buffer, few),
        "pixels": (victim, few._replace(pixels=(few.pixels + 1 / 255).clamp(0, 1))),
        "labels": (victim, few._replace(labels=few.labels.roll(1))),
        "images under these ids": (victim, few._replace(pixels=few.pixels.flip(0), labels=few.labels.flip(0))),
    }
    for model, images in other.values():
        with pytest.raises(InputError, match=r"journal of another attack, or of another model or other images"):
            attacked(model, images, attack, path)
    assert_same(attacked(deepcopy(victim), few, attack, path), expected)


def test_a_journal_of_a_function_is_refused_to_another_function_and_taken_with_other_last_bits(victim, few, tmp_path):
    attack, path = PGD(within=Linf("12/255"), steps=2), tmp_path / "journal"
    expected = attacked(Returns(lambda x: victim(x)), few, attack, path)
    with pytest.raises(InputError, match="of another model"):  # the same predictions, and no weights that would tell
        attacked(Returns(lambda x: 1.01 * victim(x)), few, attack, path)
    rounded = attacked(Returns(lambda x: victim(x) * (1 + 2e-7)), few, attack, path, batch_size=7)
    assert torch.equal(rounded.success, expected.success)


def test_a_randomised_model_goes_on_from_its_journal(victim, few, tmp_path):
    noisy = Returns(lambda x: victim(x + 0.05 * torch.randn_like(x)))
    attack, path = PGD(within=Linf("12/255"), steps=2), tmp_path / "journal"
    attacked(noisy, few, attack, path)
    known = path.read_bytes()
    attacked(noisy, few, attack, path)
    assert path.read_bytes() == known  # nothing was attacked again


def test_a_journal_of_an_earlier_version_which_named_no_model_is_begun_anew(victim, few, tmp_path, capsys):
    attack, path = PGD(within=Linf("12/255"), steps=2), tmp_path / "journal"
    expected = attacked(victim, few, attack, tmp_path / "fresh")
    entry = {"id": int(few.ids[0]), "changed": [0], "forwards": 1, "backwards": 1, "tally": [0], "pixels": None}
    lines = [{"question": fingerprint([attack, 0, "fast", False])}, entry]
    path.write_text("".join(json.dumps(seal(line)) + "\n" for line in lines))
    assert_same(attacked(victim, few, attack, path), expected)
    assert "of an earlier version: the attack begins anew" in capsys.readouterr().err
    assert path.read_bytes() == (tmp_path / "fresh").read_bytes()


# ------------------------------------------------------------------------------------------------- commands that are killed


def counting(monkeypatch):
    """The classifiers that runs hand out from now on, each of which counts what it is shown."""
    shown, real = [], Run.classifier

    def counted(run, *args):
        shown.append(Counted(real(run, *args)))
        return shown[-1].eval()

    monkeypatch.setattr(Run, "classifier", counted)
    return shown


def test_an_evaluation_killed_at_random_moments_ends_with_the_rows_of_one_never_killed(
    pair, tmp_path, monkeypatch, cli
):
    """`antiphase attack` in a process of its own, SIGKILL; the same command goes on with the examples left over."""
    for name in ("killed", "whole"):
        shutil.copytree(pair[1].folder, tmp_path / name, ignore=shutil.ignore_patterns("attacks", "measures"))
    flags = ("--eps", "6/255,10/255", "--images", "300", "--steps", "100", "--save", "--json")
    argv = [sys.executable, "-m", "antiphase", "attack", str(tmp_path / "killed"), *flags]
    seen, draw = 0, random.Random(0)
    for _ in range(2):
        process = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while process.poll() is None and _done(tmp_path / "killed") <= seen:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.2))
        assert process.poll() is None, "it was over before it could be killed"
        os.kill(process.pid, signal.SIGKILL)
        process.wait()
        seen = _done(tmp_path / "killed")
    assert seen > 0
    shown = counting(monkeypatch)
    answers = [json.loads(cli("attack", tmp_path / name, *flags)[1])["cells"] for name in ("killed", "whole")]
    for resumed, never in zip(*answers):
        assert {**resumed, "run": "", "seconds": 0} == {**never, "run": "", "seconds": 0}
    assert shown[0].images < shown[1].images - seen  # each of those done had at least a start and a step behind it
    assert not list(tmp_path.glob("*/attacks/*/*.journal"))


def _done(folder) -> int:
    """Examples that the parts and journals of an evaluation are done with."""
    lines = sum(path.read_bytes().count(b"\n") - 1 for path in folder.glob("attacks/*/*.journal"))
    return lines + sum(len(json.loads(path.read_text())["label"]) for path in folder.glob("attacks/*/part-*.json"))


LONG = {  # flags, and the journal in which it is killed
    "autoattack in its second stage": (("--attack", "autoattack", "--eps", "16/255", "--images", "64"), ".1"),
    "cw": (("--attack", "cw", "--searches", "2", "--steps", "60", "--initial-c", "1", "--images", "96"), ""),
}


@pytest.mark.parametrize("case", LONG)
def test_adversarial_examples_found_before_a_kill_are_kept_and_not_attacked_again(
    case, pair, tmp_path, monkeypatch, cli
):
    flags, last = LONG[case]
    monkeypatch.setattr(AutoAttack, "stages", shortened(**TO_BE_KILLED))
    known = _killed(pair[1].folder, tmp_path, ("-m", "tests.attacks.shortened"), (*flags, "--save", "--json"), last)
    _assert_resumed(known, tmp_path, (*flags, "--save", "--json"), monkeypatch, cli)


@pytest.mark.slow
def test_the_whole_list_on_real_images_survives_a_kill(tmp_path, monkeypatch, cli, data_root):
    """AutoAttack standard in its full length on the committed pair, killed among the nine targets of its second stage."""
    monkeypatch.setenv("ANTIPHASE_DATA", str(data_root))
    flags = ("--attack", "autoattack", "--eps", "1/255", "--images", "24", "--save", "--json")
    known = _killed(ROOT / "results/pair/DiffViT", tmp_path, ("-m", "antiphase"), flags, ".1")
    _assert_resumed(known, tmp_path, flags, monkeypatch, cli)


def _killed(run, tmp_path, program, flags, last):
    """Two copies of the run, one under attack by a process that is killed when the journal `last` has its first examples.

    Returns the entries of each journal that it left, by what follows its name.
    """
    for name in ("killed", "whole"):
        shutil.copytree(run, tmp_path / name, ignore=shutil.ignore_patterns("attacks", "measures"))
    argv = [sys.executable, *program, "attack", str(tmp_path / "killed"), *flags]
    process = subprocess.Popen(argv, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and len(_entries(tmp_path / "killed").get(last, [])) == 0:
        time.sleep(0.005)
    assert process.poll() is None, "it was over before it could be killed"
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    known = _entries(tmp_path / "killed")
    assert known[last]
    return known


def _entries(folder):
    """Whole lines of each journal, by what follows its name."""
    return {
        path.name.partition(".journal")[2]: [json.loads(line) for line in path.read_text().split("\n")[1:-1]]
        for path in folder.glob("attacks/*/*.journal*")
    }


def _assert_resumed(known, tmp_path, flags, monkeypatch, cli):
    """The same command goes on: flags, costs and pixels of a run never killed, at the price of what was not done."""
    shown = counting(monkeypatch)
    resumed, never = (json.loads(cli("attack", tmp_path / name, *flags)[1])["cells"][0] for name in ("killed", "whole"))
    exact = ("clean", "adversarial", "changed_in_run", "forwards", "backwards")
    assert {name: resumed["images"][name] for name in exact} == {name: never["images"][name] for name in exact}
    assert (resumed["rates"], resumed["flags"], resumed["saved"]) == (never["rates"], never["flags"], never["saved"])
    assert resumed.get("stages") == never.get("stages")
    entries = [entry for part in known.values() for entry in part]
    spared, looks = sum(entry["forwards"] for entry in entries), 2 * len(entries)  # at clean images, again
    assert spared - looks <= shown[1].images - shown[0].images <= spared  # no example that had ended is attacked again
    kept, pixels = (_saved(tmp_path / name) for name in ("killed", "whole"))
    assert kept.keys() == pixels.keys()
    for entry in entries:
        if entry["pixels"] is not None:
            assert torch.equal(kept[entry["id"]], unpack(entry["pixels"], kept[entry["id"]]))
    if "distances" in resumed:  # to the rounding of other neighbours: docs/attacks.md
        assert resumed["images"]["distance"] == pytest.approx(never["images"]["distance"], rel=0.02)
    else:
        assert torch.stack([kept[i] != pixels[i] for i in kept]).double().mean() < 0.01
    assert not list(tmp_path.glob("*/attacks/*/*.journal*"))


def _saved(folder):
    """Adversarial pixels of each image, by its id."""
    (path,) = folder.glob("attacks/*/*.safetensors")
    stored = load_file(path)
    return dict(zip(stored["ids"].tolist(), stored["adversarial"]))
