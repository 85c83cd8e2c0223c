# make demo | test | test-slow | bench | bench-all | calibrate | faults | replication | findings | zoo | site; each creates .venv on first use and is quick the second time.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Real data for the tests and benchmarks, where the checkout has it beside it; a user sets ANTIPHASE_DATA.
export ANTIPHASE_DATA ?= $(wildcard $(CURDIR)/../shared/data)
# Some virtual machines advertise AMX and end the process that uses it (bfloat16 in oneDNN); nothing in float32 depends on this.
export ONEDNN_MAX_CPU_ISA ?= AVX512_CORE_FP16
# Threads that wait for each other sleep: beside other jobs, spinning ones take several times as long.
export OMP_WAIT_POLICY ?= PASSIVE

.PHONY: demo test test-slow bench bench-all calibrate faults replication findings zoo lint types site screenshot clean

$(VENV)/.user: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable .
	touch $@

$(VENV)/.dev: $(VENV)/.user
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@

$(VENV)/.docs: $(VENV)/.user
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[docs]'
	touch $@

# torchattacks and foolbox, layered on .venv so that torch is not installed twice.
$(VENV)-peers/.peers: $(VENV)/.dev benchmarks/peers.txt
	test -x $(VENV)-peers/bin/python || $(PYTHON) -m venv $(VENV)-peers
	$(BIN)/python -c "import site, pathlib; print(site.getsitepackages()[0], pathlib.Path('src').resolve(), sep='\n')" \
		> $$($(VENV)-peers/bin/python -c "import site; print(site.getsitepackages()[0])")/antiphase.pth
	$(VENV)-peers/bin/python -m pip install --quiet --no-deps --requirement benchmarks/peers.txt
	touch $@

demo: $(VENV)/.user
	$(BIN)/antiphase demo

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

test: lint types
	$(BIN)/python -m pytest --numprocesses 2 --dist loadfile

test-slow: $(VENV)/.dev $(VENV)-peers/.peers
	$(BIN)/python -m pytest -m "slow and not alone" --numprocesses 2 --dist loadfile
	$(BIN)/python -m pytest -m alone

bench: $(VENV)-peers/.peers
	env -u OMP_WAIT_POLICY $(VENV)-peers/bin/python -m benchmarks $(ONLY)

bench-all: $(VENV)-peers/.peers
	env -u OMP_WAIT_POLICY $(VENV)-peers/bin/python -m benchmarks --all

# Coverage of intervals and error rates of verdicts, simulated: docs/statistics.md. Goes on where it was stopped; AFRESH=--afresh starts again.
calibrate: $(VENV)/.dev
	$(BIN)/python -m benchmarks.calibrate $(AFRESH)

# Everything that can go wrong, tried: docs/reliability.md. Takes hours, goes on where it was stopped; needs root for full disks.
faults: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.faults

# Goes on with the replication (benchmarks/replication.py): two processes of one thread each, at low priority, in a checkout of
# its own at a fixed commit, so that edits here do not reach it. It takes days; stop it at any time.
REPLICATION := c7d5a5173e1d
replication:
	test -e runs/replication/Makefile || git worktree add --force --detach runs/replication $(REPLICATION)
	git -C runs/replication checkout --quiet --detach $(REPLICATION)
	$(MAKE) -C runs/replication $(VENV)/.user
	cd runs/replication && export OMP_NUM_THREADS=1 && for process in 1 2; do \
		nice -n 15 $(BIN)/python -m benchmarks.replication --ledger $(CURDIR)/results/replication & \
	done; wait

# Every number of the replication in README.md, docs/ and results/replication/ is written from its rows.
findings: $(VENV)/.dev
	$(BIN)/python -m benchmarks.findings

# Names, accuracy and accuracy under AutoAttack of the trained models that are committed: results/zoo.json, which `ap.zoo` reads.
zoo: $(VENV)/.dev
	OMP_NUM_THREADS=1 $(BIN)/python -m benchmarks.zoo

# The documentation as a site, without a network: runs/site/index.html. Any warning is an error (not with --quiet). The variable silences an announcement of the
# theme's authors about a later mkdocs.
site: $(VENV)/.docs
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build
	@echo runs/site/index.html

# The picture in README.md: the page that `make demo` wrote, as a browser shows it.
screenshot: demo $(VENV)/.dev
	$(BIN)/python docs/screenshot.py runs/demo/report/index.html docs/report.png

clean:
	rm -rf $(VENV) $(VENV)-peers runs
