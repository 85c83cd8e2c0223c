"""antiphase certify"""

import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import antiphase as ap

SIZES = ("--sigma", "0.12", "--samples", "60", "--images", "48", "--attack-images", "3", "--attack-steps", "10")


def copied(runs, folder):
    for run in runs:
        shutil.copytree(
            run, folder / Path(run).name, ignore=shutil.ignore_patterns("certificates", "attacks", "predictions")
        )
    return [folder / Path(run).name for run in runs]


def test_the_table_says_what_the_json_has_and_both_orders_of_flags_agree(cli, runs, tmp_path):
    folders = copied(runs, tmp_path)
    code, out, err = cli("certify", *folders, *SIZES)
    assert code == 0, err
    result = json.loads(cli("certify", *SIZES, *folders, "--json")[1])
    assert [run["name"] for run in result["runs"]] == ["ViT", "DiffViT"]
    text = " ".join(out.split())
    assert "certified accuracy of the model smoothed at sigma 0.12, n = 48 digits test images" in text
    assert "McNemar p (Holm)" in text
    assert "certified <= true radius of the smoothed model <= attacked" in text
    assert "red flag" not in text
    assert "0.5 out of reach out of reach -" in text
    assert (
        "the largest possible radius is 0.148, where all draws agree, so 0.25, 0.5, 0.75, 1 cannot be reached" in text
    )
    assert "more --samples help (0.25 takes 368), or a larger --sigma." in text
    for run in result["runs"]:
        (own,) = run["certificates"]
        assert f"{100 * own['rates'][0]['value']:.1f} %" in text
        assert own["rates"][0]["hits"] > 16  # far above chance: smoothed at this noise the pair still reads digits
        for row in own["sandwich"]:
            assert row["attacked"] is None or row["certified"] <= row["attacked"]


def test_kill_9_loses_nothing_and_the_same_command_ends_with_the_same_result(cli, runs, tmp_path):
    whole, broken = (copied(runs[1:], tmp_path / name)[0] for name in ("whole", "broken"))
    argv = ("certify", *SIZES, "--json")
    expected = json.loads(cli(*argv, whole)[1])
    process = subprocess.Popen(
        [sys.executable, "-m", "antiphase", *argv, str(broken)], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    began = time.monotonic()
    while not list(broken.glob("certificates/*/part-*.json")) and time.monotonic() - began < 120:
        time.sleep(0.005)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert list(broken.glob("certificates/*/part-*.json"))  # a part is kept, and it was killed before the whole was
    code, out, err = cli(*argv, broken)
    assert code == 0, err
    result = json.loads(out)
    for own in (result, expected):
        del own["runs"][0]["folder"]
    assert result == expected
    assert not list(broken.glob("certificates/*/"))
    assert not list(broken.rglob("*.partial"))


def test_the_function_is_the_command(cli, runs, tmp_path, digits):
    folder = copied(runs[1:], tmp_path)[0]
    code, out, err = cli("certify", folder, "--sigma", "0.25,0.5", "--samples", "20", "--images", "3", "--json")
    assert code == 0, err
    assert ap.certify(folder, sigma=[0.5, 0.25], samples=20, images=None)["config"]["samples"] == 20
    given = ap.certify(folder, images=digits[1].subset(3), sigma=[0.25, 0.5], samples=20)
    assert given["runs"] == json.loads(out)["runs"]
    assert given["paired"] == []
