# Everything below makes its own environment first. PYTHON=python3.12 make test picks another interpreter.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed

# Tests start many processes, which would compile every module again
unexport PYTHONDONTWRITEBYTECODE

.PHONY: test pytest test-long demo check fuzz hostile soak soak-ranks mutants clean

test: $(INSTALLED)
	$(MAKE) --no-print-directory --jobs=2 check pytest

pytest: $(INSTALLED)
	$(BIN)/python -m pytest

# Tests that start processes which load everything anew, compile for a GPU, or draw figures twice: before a release
test-long: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable '.[dev,long]' --constraint constraints.txt
	$(BIN)/python -m pytest -m long

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

demo: $(INSTALLED)
	$(BIN)/truepair demo --out truepair-demo.html

# Kills, full disks, threads, fork and spawn; SOAK="--kills 50 --seed 7" sets other options
soak: $(INSTALLED)
	$(BIN)/python tools/soak $(SOAK)

# Ranks of torchrun that are killed, hang or have a full disk; SOAK="--kills 40 --seed 7" sets other options
soak-ranks: $(INSTALLED)
	$(BIN)/python tools/soak/ranks.py $(SOAK)

# Hostile requests to a service, by raw sockets; HOSTILE="--count 5000 --seed 7" sets other options
hostile: $(INSTALLED)
	PYTHONPATH=tools $(BIN)/python -m hostile $(HOSTILE)

# Inputs for everything that is read; FUZZ='--count 1000 --seed 7 --target arrow --seconds 60' changes how many.
fuzz: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]' --constraint constraints.txt
	PYTHONPATH=tools $(BIN)/python -m fuzzing $(FUZZ)

# Small changes of the source that tests should notice; MUTANTS="--count 20 --seed 7 data/ids.py" sets other options
mutants: $(INSTALLED)
	PYTHONPATH=tools $(BIN)/python -m mutation $(MUTANTS)

$(INSTALLED): pyproject.toml lab/pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("truepair needs Python 3.11 or newer; set PYTHON=…") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --no-compile --editable '.[dev]' --editable lab --constraint constraints.txt
	-$(BIN)/python -m compileall -qq -j 2 $(VENV)/lib
	touch $@

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
