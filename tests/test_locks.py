"""One process at a time, by a lock of the kernel or by a lease."""

import subprocess
import sys
import time

import pytest
from filelock import Timeout

from antiphase import locks
from antiphase.config import InputError
from antiphase.locks import locked


@pytest.fixture(params=locks.KINDS)
def kind(request, monkeypatch):
    monkeypatch.setenv(locks.KIND, request.param)
    return request.param


def test_a_lock_is_had_by_one_and_free_after_it(kind, tmp_path):
    with locked(tmp_path / "a.lock", timeout=0) as mine:
        assert mine
        with locked(tmp_path / "a.lock", timeout=0) as second, locked(tmp_path / "b.lock", timeout=0) as other:
            assert (second, other) == (False, True)
    with locked(tmp_path / "a.lock", timeout=0) as again:
        assert again
    assert kind == "flock" or not list(tmp_path.glob("*.lease"))


HOLD = """
import sys, time
from pathlib import Path
from antiphase.locks import locked
with locked(Path(sys.argv[1]), timeout=0) as mine:
    print(mine, flush=True)
    time.sleep(60)
"""


def test_a_lease_is_kept_as_long_as_its_process_lives_and_taken_over_when_it_was_killed(tmp_path, monkeypatch):
    monkeypatch.setenv(locks.KIND, "lease")
    monkeypatch.setenv(locks.SECONDS, "1.5")
    path = tmp_path / "a.lock"
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout.readline() == "True\n"
    with locked(path, timeout=3) as mine:  # longer than a lease: it is renewed
        assert not mine
    holder.kill()
    holder.wait()
    began = time.monotonic()
    with locked(path, timeout=20) as mine:
        assert mine
        assert time.monotonic() - began > 1
        assert f'"pid": {holder.pid}' not in path.with_suffix(".lease").read_text()


def test_one_of_two_that_wait_for_an_expired_lease_takes_it_over(tmp_path, monkeypatch):
    monkeypatch.setenv(locks.SECONDS, "0.2")
    dead = locks.Lease(tmp_path / "a.lock")
    dead.path.write_text(dead._text(0))
    others = [locks.Lease(tmp_path / "a.lock") for _ in range(2)]
    assert [lease._take() for lease in others] == [False, False]
    time.sleep(0.3)
    assert [lease._take() for lease in others] == [True, False]


def test_a_lease_that_is_made_and_not_yet_written_has_not_expired(tmp_path, monkeypatch):
    monkeypatch.setenv("ANTIPHASE_LEASE_SECONDS", "30")
    (tmp_path / "x.lease").touch()
    with pytest.raises(Timeout):
        locks.Lease(tmp_path / "x.lock").acquire(timeout=0)


def test_a_kind_of_lock_that_does_not_exist_is_refused(monkeypatch, tmp_path):
    monkeypatch.setenv(locks.KIND, "hope")
    with pytest.raises(InputError, match="flock, lease"), locked(tmp_path / "a.lock"):
        pass
