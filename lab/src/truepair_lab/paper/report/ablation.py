"""Ablation: what each part of DPL brings, judged after the last epoch."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from truepair_lab.lines import Lines
from truepair_lab.markdown import metric_name, table
from truepair_lab.paper.presets import DATA
from truepair_lab.paper.report.names import ENCODER_NAMES, NOT_RUN, dataset_name, in_order, not_run
from truepair_lab.paper.report.study_runs import NDCG, Cell, study_of
from truepair_lab.statistics import Difference, Mean, bold, corrected, difference, sign_of

VARIANTS = {
    "dpl": "DPL, the authors' settings: the baseline",
    "half": "the positive-positive term replaced by its expectation ½",
    "tau=0": "τ = 0: no correction, the mean over N inside the logarithm stays",
    "n-alone": "BPR with DPL's N, the mean outside the logarithm",
    "hard-alone": "hard weights, τ = 0",
    "hard": "hard weights with τ raised",
    "dns-alone": "the N highest-scored of 5·N candidates (DNS), τ = 0",
    "dns": "the N highest-scored of 5·N candidates (DNS) with τ raised",
    "relative-clamp": "the floor relative to the uncorrected probability",
    "bpr-matched": "BPR with as many scores a row as DPL",
    "infonce-matched": "InfoNCE with as many scores a row as DPL",
}


@dataclass(frozen=True)
class Part:
    """One variant of DPL: NDCG@20 after the last epoch and at the best one; the rows at the floor."""

    variant: str
    last: Mean | None
    best: Mean | None
    clamped: float | None
    tau: float | None = None

    @property
    def what(self) -> str:
        """What it is; hard samples come with another τ, so two things change at once."""
        raised = f" to {self.tau:g}" if self.variant in ("hard", "dns") and self.tau is not None else ""
        return VARIANTS.get(self.variant, "") + raised


def ablation(lines: Lines) -> dict[tuple[str, str], dict[str, Part]]:
    """The variants that were run, for each (dataset, encoder)."""
    study = study_of(lines, "ablation")
    found: dict[tuple[str, str], dict[str, Part]] = defaultdict(dict)
    for (d, e, m, v), cell in sorted(study.cells.items(), key=lambda item: in_order(DATA)(item[0][0])):
        means = study.mean(d, e, m, variant=v, last=True), study.mean(d, e, m, variant=v)
        found[d, e][v] = Part(v, *means, cell.clamped, _tau(cell))
    return found


def _tau(cell: Cell) -> float | None:
    tau = cell.runs[0].parameters.get("loss.tau")
    return float(tau) if isinstance(tau, int | float) else None


def ablation_tables(lines: Lines) -> str:
    """What each part brings: the last epoch, nothing chosen; beside it the best epoch."""
    found = ablation(lines)
    return "\n\n".join(_ablation(*place, parts) for place, parts in found.items()) or not_run(
        ["the ablation"]
    )


def _ablation(dataset: str, encoder: str, parts: Mapping[str, Part]) -> str:
    names = sorted({*VARIANTS, *parts}, key=in_order(VARIANTS))
    gaps = differences(parts)
    rows = [_part_row(parts.get(name, Part(name, None, None, None)), gaps.get(name)) for name in names]
    ndcg = metric_name(NDCG)
    head = [
        "variant",
        "what it is",
        f"{ndcg}, last epoch",
        "- `dpl`",
        f"{ndcg}, best epoch",
        "rows at the floor",
    ]
    title = f"#### {dataset_name(dataset)}, {ENCODER_NAMES.get(encoder, encoder)}"
    missing = [name for name in names if name not in parts]
    return "\n\n".join([title, table(head, rows), _ABLATION, *([not_run(missing)] if missing else [])])


_ABLATION = (
    "Compare the last epoch, where nothing is chosen; the best epoch is chosen on the test part. Differences "
    "with one standard error over seeds; bold ones are significant, by Welch's t with p corrected by Holm "
    "over the differences of the table."
)


def differences(parts: Mapping[str, Part]) -> dict[str, tuple[Difference, int | None]]:
    """Each variant's last epoch less DPL's, and its sign; see `sign_of`."""
    base = parts["dpl"].last if "dpl" in parts else None
    found = {n: difference(part.last, base) for n, part in parts.items() if part.last and base and n != "dpl"}
    p_values = corrected([gap.p() for gap in found.values()])
    pairs = zip(found.items(), p_values, strict=True)
    return {name: (gap, sign_of(gap.value, p)) for (name, gap), p in pairs}


def _part_row(part: Part, found: tuple[Difference, int | None] | None) -> list[object]:
    gap = bold(str(found[0]), bool(found[1])) if found else "–"
    floor = "–" if part.clamped is None else f"{part.clamped:.1%}"
    return [f"`{part.variant}`", part.what, part.last or NOT_RUN, gap, part.best or NOT_RUN, floor]
