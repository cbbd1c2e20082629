"""Benchmarks: everything that is compared runs in one invocation, in alternating rounds."""

from truepair_lab.benchmarks.contest import contest_quality
from truepair_lab.benchmarks.full import full_quality, full_scaling
from truepair_lab.benchmarks.gpu import gpu_speed
from truepair_lab.benchmarks.lists import evaluation_speed, ranking_speed
from truepair_lab.benchmarks.outcome import Options, Outcome, Row, Skipped, alternate, medians
from truepair_lab.benchmarks.quality import final_quality, time_to_quality
from truepair_lab.benchmarks.running import Benchmark, run_benchmarks
from truepair_lab.benchmarks.scaling import epoch_scaling
from truepair_lab.benchmarks.training import training_speed
from truepair_lab.benchmarks.training_memory import peak_memory

BENCHMARKS: dict[str, Benchmark] = {
    "training": training_speed,
    "time-to-quality": time_to_quality,
    "fast-quality": final_quality,
    "quality": contest_quality,
    "ranking": ranking_speed,
    "evaluation": evaluation_speed,
    "memory": peak_memory,
    "scaling": epoch_scaling,
    "full": full_quality,
    "full-scaling": full_scaling,
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
