"""Imports go one way, from the data to the product; and importing truepair stays light."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import truepair

ROOT = Path(truepair.__file__).parent

# The way of the data, as docs/map.md draws it: a module imports only from lines above it.
ORDER = [
    "errors",
    "randomness",
    "compiling",
    "machine",
    "data.ids",
    "data.interactions",
    "data.columns",
    "data.memory",
    "data.files",
    "data.text",
    "data.formats",
    "data.reading",
    "data.simulation",
    "data.split",
    "data.splitting",
    "data.parsers",
    "data.placing",
    "data.download",
    "data.archives",
    "data.dataset",
    "data.datasets",
    "data.fetching",
    "data.catalogue",
    "matrices",
    "sampling",
    "posterior",
    "losses",
    "encoders",
    "closed",
    "tensorfile",
    "training.settings",
    "training.result",
    "training.progress",
    "training.checkpoints",
    "training.plan",
    "training.trainer",
    "training.weights",
    "training.cpu_functions",
    "training.cpu_losses",
    "training.cpu_rows",
    "training.cpu_lines",
    "training.cpu_course",
    "training.cpu_graph",
    "training.cpu_rivals",
    "training.cpu_batch",
    "training.cpu_memory",
    "training.cpu_steps",
    "training.cpu",
    "training.cpu_updates",
    "training.cpu_draws",
    "training.cpu_entries",
    "training.cpu_fast",
    "training.gpu_losses",
    "training.gpu_rivals",
    "training.gpu_kernels",
    "training.gpu_graph",
    "training.gpu_runs",
    "training.gpu",
    "training.reference",
    "training.rows_block",
    "training.rows_pairs",
    "training.rows_losses",
    "training.rows_histogram",
    "training.gpu_pairs",
    "training.rows_gpu",
    "training.rows_scoring",
    "training.rows_course",
    "training.rows_trainer",
    "training.rows_recorded",
    "training.rows",
    "training.running",
    "training.many",
    "training.folding",
    "training",
    "prior.evidence",
    "prior.cells",
    "prior.plateau",
    "prior.ratios",
    "prior.estimate",
    "prior.calibration",
    "prior.filling",
    "prior",
    "ranking_cpu",
    "ranking_scores",
    "ranking_blocks",
    "ranking",
    "evaluation.metrics",
    "evaluation.statistics",
    "evaluation.task",
    "evaluation.evaluation",
    "evaluation.comparison",
    "evaluation",
    "tables",
    "storage",
    "parameters",
    "carving",
    "shelf",
    "solving",
    "usual",
    "summing",
    "recommender",
    "adapters",
    "adapters.implicit.factors",
    "adapters.implicit.model",
    "adapters.implicit.als",
    "adapters.implicit.bpr",
    "adapters.implicit.dpl",
    "adapters.implicit",
    "experiments",
    "experiments.report",
    "experiments.figures",
    "experiments.demo_result",
    "experiments.demo_output",
    "experiments.demo",
    "experiments.tuning.domains",
    "experiments.tuning.trials",
    "experiments.tuning.lock",
    "experiments.tuning.study",
    "experiments.tuning.runner",
    "experiments.tuning.search",
    "experiments.tuning",
    "experiments.tuning.spaces",
    "experiments.tuning.report",
    "experiments.lines",
    "experiments.searching",
    "experiments.paper",
    "experiments.paper.presets",
    "experiments.paper.points",
    "experiments.paper.search",
    "experiments.paper.plan",
    "experiments.paper.published",
    "experiments.paper.words",
    "experiments.paper.estimates",
    "experiments.paper.cells",
    "experiments.paper.clean",
    "experiments.paper.tables",
    "experiments.paper.bars",
    "experiments.paper.ablation",
    "experiments.paper.effort",
    "experiments.paper.work",
    "experiments.paper.questions",
    "experiments.paper.claims",
    "experiments.paper.figures",
    "experiments.paper.findings",
    "experiments.paper.report",
    "experiments.paper.running",
    "experiments.paper.contrasts",
    "experiments.paper.timing",
    "experiments.paper.steps",
    "experiments.theory",
    "experiments.theory.scores",
    "experiments.theory.probability",
    "experiments.theory.estimators",
    "experiments.theory.results",
    "experiments.theory.lemma1",
    "experiments.theory.lemma2",
    "experiments.theory.lemma3",
    "experiments.theory.identity",
    "experiments.theory.running",
    "experiments.theory.tables",
    "experiments.theory.figures",
    "experiments.theory.report",
    "experiments.truth",
    "experiments.truth.cases",
    "experiments.truth.coat",
    "experiments.truth.sources",
    "experiments.truth.treatments",
    "experiments.truth.fitting",
    "experiments.truth.quality",
    "experiments.truth.told",
    "experiments.truth.probes",
    "experiments.truth.lines",
    "experiments.truth.posterior_lines",
    "experiments.truth.posterior",
    "experiments.truth.running",
    "experiments.truth.summary",
    "experiments.truth.tables",
    "experiments.truth.figures",
    "experiments.truth.conclusions",
    "experiments.truth.posterior_report",
    "experiments.truth.report",
    "experiments.quality",
    "experiments.quality.cases",
    "experiments.quality.contestants",
    "experiments.quality.settled",
    "experiments.quality.sums",
    "experiments.quality.running",
    "experiments.quality.tables",
    "experiments.quality.report",
    "experiments.prior_plot",
    "experiments.prior_study",
    "experiments.prior_study.lines",
    "experiments.prior_study.cases",
    "experiments.prior_study.measuring",
    "experiments.prior_study.auto",
    "experiments.prior_study.running",
    "experiments.prior_study.groups",
    "experiments.prior_study.tables",
    "experiments.prior_study.figures",
    "experiments.prior_study.worth",
    "experiments.prior_study.trained",
    "experiments.prior_study.conclusions",
    "experiments.prior_study.words",
    "experiments.prior_study.report",
    "experiments.prior_study.__main__",
    "benchmarks.outcome",
    "benchmarks.peers",
    "benchmarks.ours",
    "benchmarks.training",
    "benchmarks.quality",
    "benchmarks.contest",
    "benchmarks.lists",
    "benchmarks.memory",
    "benchmarks.scaling",
    "benchmarks.exact",
    "benchmarks.plots",
    "benchmarks.gpu",
    "benchmarks.running",
    "benchmarks.table",
    "benchmarks",
    "commands",
    "commands.voice",
    "commands.options",
    "commands.sources",
    "commands.parameters",
    "commands.idtext",
    "commands.writing",
    "commands.demo",
    "commands.data",
    "commands.fit",
    "commands.evaluate",
    "commands.recommend",
    "commands.similar",
    "commands.compare",
    "commands.tune",
    "commands.bench",
    "commands.paper",
    "commands.quality",
    "commands.prior",
    "commands.theory",
    "commands.truth",
    "commands.doctor",
    "cli",
    "__main__",
]


def name_of(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path):
    for node in ast.walk(ast.parse(path.read_text())):
        assert not (isinstance(node, ast.ImportFrom) and node.level), "imports are written out, not relative"
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("truepair"):
            module = node.module.removeprefix("truepair").removeprefix(".")
            parts = {f"{module}.{alias.name}".removeprefix(".") for alias in node.names}  # perhaps modules
            yield from parts & set(MODULES) or {module}
        if isinstance(node, ast.Import):
            yield from (a.name.removeprefix("truepair.") for a in node.names if a.name.startswith("truepair"))


MODULES = {name_of(path): path for path in ROOT.rglob("*.py")}


def test_every_module_has_its_line():
    assert sorted(ORDER) == sorted(set(MODULES) - {"", "data"})


@pytest.mark.parametrize("module", ORDER)
def test_a_module_imports_only_from_lines_above_it(module):
    above = ORDER[: ORDER.index(module)]
    assert [name for name in imported(MODULES[module]) if name not in above] == []


def test_training_cannot_see_the_test_set():
    for module in ORDER:
        if module.startswith(("training", "sampling", "losses", "encoders", "closed")):
            assert not [n for n in imported(MODULES[module]) if n.startswith(("evaluation", "data.split"))]


def modules_after(code):
    program = f"import sys\n{code}\nprint('\\n'.join(sys.modules))"
    return set(
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_importing_truepair_loads_no_kernels_plots_or_web_code():
    everything = "import truepair\nfor name in truepair.__all__: getattr(truepair, name)"
    loaded = {name.partition(".")[0] for name in modules_after(everything)}
    assert not loaded & {
        "numba",
        "triton",
        "matplotlib",
        "fastapi",
        "uvicorn",
        "starlette",
        "pandas",
        "polars",
        "rich",
    }


def test_public_names_exist_and_unknown_ones_say_so():
    for name in truepair.__all__:
        assert getattr(truepair, name) is not None
    assert set(truepair.__all__) <= set(dir(truepair))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = truepair.nothing
