"""Files are whole, as they were written, or absent; a full disk and a killed process leave nothing false behind."""

import errno
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch

from antiphase import files, locks
from antiphase.config import InputError, read_text
from antiphase.data import cache
from antiphase.files import Damaged, DiskFull
from antiphase.tensors import read_tensors, write_tensors

ROW = {"epoch": 1, "loss": 2.3021, "lambda": {"a": 0.5}}


@pytest.mark.parametrize("write", [files.write_json, lambda path, row: files.write_lines(path, [row, row])])
def test_one_changed_digit_of_a_stored_mapping_is_noticed(write, tmp_path):
    path = tmp_path / "stored"
    write(path, ROW)
    read = files.read_json if write is files.write_json else files.read_lines
    assert read(path) in (ROW, [ROW, ROW])
    path.write_text(path.read_text().replace("2.3021", "2.3921", 1))
    with pytest.raises(Damaged, match=r"stored.* damaged or was altered"):
        read(path)


def test_every_changed_byte_of_a_sealed_file_is_noticed_or_makes_no_difference(tmp_path):
    path = tmp_path / "stored.json"
    files.write_json(path, ROW)
    whole = path.read_bytes()
    for place in range(len(whole)):
        for bit in (0, 3, 6):
            changed = bytearray(whole)
            changed[place] ^= 1 << bit
            path.write_bytes(changed)
            try:
                content = files.read_json(path)
            except InputError:
                continue
            assert {k: v for k, v in content.items() if k in ROW} == ROW  # only the name of the digest was hit


def test_what_earlier_versions_wrote_without_a_digest_is_read(tmp_path):
    (tmp_path / "old.json").write_text(json.dumps(ROW))
    assert files.read_json(tmp_path / "old.json", "epoch") == ROW


def test_what_is_written_for_other_programs_has_no_digest(tmp_path):
    files.write_lines(tmp_path / "rows.jsonl", [ROW], sealed=False)
    assert json.loads((tmp_path / "rows.jsonl").read_text()) == ROW


def test_a_kept_file_that_is_damaged_is_made_again(tmp_path, capsys):
    assert files.read_kept(tmp_path / "none.json") is None
    files.write_json(tmp_path / "kept.json", ROW)
    assert files.read_kept(tmp_path / "kept.json", "loss") == ROW
    (tmp_path / "kept.json").write_text("{")
    assert files.read_kept(tmp_path / "kept.json", "loss") is None
    assert "made again" in capsys.readouterr().err


def test_tensors_are_those_that_were_written_or_refused(tmp_path):
    path = tmp_path / "kept.safetensors"
    write_tensors(path, {"classes": torch.arange(6.0).reshape(2, 3)})
    assert torch.equal(read_tensors(path)["classes"], torch.arange(6.0).reshape(2, 3))
    content = bytearray(path.read_bytes())
    content[-2] ^= 1
    path.write_bytes(content)
    with pytest.raises(Damaged, match="computed again"):
        read_tensors(path)


def test_a_killed_writer_leaves_the_old_file_and_its_debris_is_swept_but_never_that_of_a_living_one(tmp_path):
    path = tmp_path / "kept.json"
    files.write_json(path, ROW)
    script = (
        "import sys, time\nfrom pathlib import Path\nfrom antiphase import files\n"
        "def slow(temporary):\n    temporary.write_text('half')\n    print('writing', flush=True)\n    time.sleep(60)\n"
        "files.write_whole(Path(sys.argv[1]), slow)\n"
    )
    writer = subprocess.Popen([sys.executable, "-c", script, str(path)], stdout=subprocess.PIPE, text=True)
    assert writer.stdout.readline() == "writing\n"
    files.sweep(tmp_path)
    assert len(list(tmp_path.glob(".*.partial"))) == 1  # it is being written
    os.kill(writer.pid, signal.SIGKILL)
    writer.wait()
    assert files.read_json(path) == ROW
    files.sweep(tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["kept.json"]


def test_a_pipe_among_debris_and_in_place_of_a_file_makes_nothing_wait(tmp_path):
    os.mkfifo(tmp_path / ".a.partial")
    files.sweep(tmp_path)
    assert not list(tmp_path.iterdir())
    os.mkfifo(tmp_path / "log.jsonl")
    with pytest.raises(InputError, match="is not a regular file"):
        read_text(tmp_path / "log.jsonl")


def test_debris_without_locks_is_swept_after_a_day(tmp_path, monkeypatch):
    (tmp_path / ".kept.json.x.partial").mkdir()
    monkeypatch.setattr(files, "_locked", lambda _: None)
    files.sweep(tmp_path)
    assert list(tmp_path.iterdir())
    yesterday = time.time() - files.ABANDONED - 1
    os.utime(tmp_path / ".kept.json.x.partial", (yesterday, yesterday))
    files.sweep(tmp_path)
    assert not list(tmp_path.iterdir())


def test_under_leases_what_another_machine_may_be_writing_is_swept_by_age_alone(tmp_path, monkeypatch):
    monkeypatch.setenv(locks.KIND, "lease")
    theirs = tmp_path / ".kept.json.x.partial"  # this kernel knows nothing of the lock that its writer holds
    theirs.mkdir()
    files.write_json(tmp_path / "other.json", ROW)
    files.sweep(tmp_path)
    assert theirs.exists()
    yesterday = time.time() - files.ABANDONED - 1
    os.utime(theirs, (yesterday, yesterday))
    files.sweep(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["other.json"]


def test_a_full_disk_is_noticed_before_the_first_image_is_decoded(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path / "cache"))

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(DiskFull, match=r"\.npy could not be written: the disk of .* is full \(.* MB free\)"):
        cache.decoded("key", (4, 1, 2, 2), lambda: pytest.fail("an image was decoded"), "images")
    assert not list((tmp_path / "cache").iterdir())
    monkeypatch.undo()
    monkeypatch.setenv("ANTIPHASE_CACHE", str(tmp_path / "cache"))
    pictures = np.arange(16, dtype=np.uint8).reshape(4, 1, 2, 2)
    array, digest = cache.decoded("key", (4, 1, 2, 2), lambda: iter(pictures), "images")
    assert (np.array_equal(array, pictures), len(digest)) == (True, 64)
