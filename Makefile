# Everything below makes its own environment first. PYTHON=python3.12 make test picks another interpreter.
PYTHON ?= python3
VENV ?= .venv
BIN = $(VENV)/bin
INSTALLED = $(VENV)/.installed

.PHONY: test demo check fuzz clean

test: check
	$(BIN)/python -m pytest

check: $(INSTALLED)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

demo: $(INSTALLED)
	$(BIN)/truepair demo --out truepair-demo.html

# Inputs for everything that is read; FUZZ='--count 1000 --seed 7 --target arrow --seconds 60' changes how many.
fuzz: $(INSTALLED)
	$(BIN)/python -m pip install --quiet --editable '.[fuzz]' --constraint constraints.txt
	PYTHONPATH=tools $(BIN)/python -m fuzzing $(FUZZ)

$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -c 'import sys; sys.exit("truepair needs Python 3.11 or newer; set PYTHON=…") if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --constraint constraints.txt
	touch $@

clean:
	rm -rf $(VENV) build .pytest_cache .mypy_cache .ruff_cache .hypothesis
