"""Benchmarks: everything that is compared runs in one invocation, in alternating rounds."""

from truepair.benchmarks.contest import contest_quality
from truepair.benchmarks.exact import exact_scaling, time_to_exact_quality
from truepair.benchmarks.gpu import gpu_speed
from truepair.benchmarks.lists import evaluation_speed, ranking_speed
from truepair.benchmarks.memory import peak_memory
from truepair.benchmarks.outcome import Options, Outcome, Row, Skipped, alternate, medians
from truepair.benchmarks.quality import final_quality, time_to_quality
from truepair.benchmarks.running import Benchmark, run_benchmarks
from truepair.benchmarks.scaling import epoch_scaling
from truepair.benchmarks.training import graph_speed, training_speed

BENCHMARKS: dict[str, Benchmark] = {
    "training": training_speed,
    "lightgcn": graph_speed,
    "time-to-quality": time_to_quality,
    "fast-quality": final_quality,
    "quality": contest_quality,
    "ranking": ranking_speed,
    "evaluation": evaluation_speed,
    "memory": peak_memory,
    "scaling": epoch_scaling,
    "exact": time_to_exact_quality,
    "exact-scaling": exact_scaling,
    "gpu": gpu_speed,
}

__all__ = [
    "BENCHMARKS",
    "Benchmark",
    "Options",
    "Outcome",
    "Row",
    "Skipped",
    "alternate",
    "medians",
    "run_benchmarks",
]
