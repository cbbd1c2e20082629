"""Claims: what the paper says, and what the lines say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truepair.evaluation.comparison import SIGNIFICANT
from truepair_lab.lines import Lines
from truepair_lab.markdown import metric_name, table
from truepair_lab.paper.presets import DATA, ENCODERS
from truepair_lab.paper.report import questions as q
from truepair_lab.paper.report.questions import GENERALLY, SEVERAL, SIMILAR, SLIGHTLY
from truepair_lab.paper.report.study_runs import NDCG, SWEPT
from truepair_lab.paper.report.tables import REPRODUCED
from truepair_lab.statistics import LEAST_SEEDS, UNKNOWN

MF = ("mf",)  # the encoder of Table III
MARKS = ("holds", "holds in part", "does not hold here", "not shown", "not tested")
ALL, MOVIELENS = tuple(DATA), ("ml-100k", "ml-1m")  # the datasets of Tables II and III


@dataclass(frozen=True)
class Verdict:
    """One of MARKS, the numbers behind it, and how many of its datasets were run, where not all were."""

    mark: str
    numbers: str
    reach: str = ""

    def __str__(self) -> str:
        return f"**{self.mark}**" + (f" ({self.reach})" if self.reach else "")


@dataclass(frozen=True)
class Claim:
    """What is claimed, where, of which datasets, and how to ask the lines.

    `enough` is the share of answers that must be yes.
    """

    text: str
    where: str
    ask: q.Ask
    about: Sequence[str] = ()
    enough: float = 1.0

    def judge(self, lines: Lines) -> Verdict:
        """The claim's verdict on these lines; answers without a known spread are no answers."""
        answers = list(self.ask(lines))
        signs = q.signs(answers)
        known = [sign for sign in signs if sign is not None]
        texts = [answer.text for answer in answers if answer.text]
        if not known:
            return Verdict("not tested", "<br>".join([f"{UNKNOWN}:", *texts]) if answers else "no lines")
        yes, no, open_ = known.count(1), known.count(-1), known.count(0)
        held = yes / len(known) >= self.enough
        mark = MARKS[0 if held else 1 if yes else 2 if no else 3]
        count = f"{yes} of {len(known)}" + (f" ({open_} not significant)" if open_ else "") + ":"
        return Verdict(mark, "<br>".join([count, *texts]), self._reach(answers, signs))

    def _reach(self, answers: Sequence[q.Answer], signs: Sequence[int | None]) -> str:
        asked = [answer for answer, sign in zip(answers, signs, strict=True) if sign is not None]
        k = len({name for answer in asked for name in answer.datasets} & set(self.about))
        return f"{k} of {len(self.about)} datasets" if k < len(self.about) else ""


CLAIMS = (
    Claim("DPL is the best of the five losses", "Table II", q.dpl_is_best, ALL),
    Claim("InfoNCE is at least as good as BPR", "Table II", q.infonce_at_least, ALL),
    Claim(
        "InfoNCE gains more over BPR on large, sparse data",
        "Table II",
        q.more_on_sparse,
        (*q.DENSE, *q.SPARSE),
    ),
    Claim("DCL is better than BPR", "Table II", q.better("dcl", "bpr"), ALL),
    Claim("DCL is better than InfoNCE", "Table II", q.better("dcl", "infonce"), ALL),
    Claim("Debiased losses generally beat those without", "Table II", q.debiased, ALL, enough=GENERALLY),
    Claim("HCL is better than DCL", "Table II", q.better("hcl", "dcl"), ALL),
    Claim("With LightGCN, DPL is at least as good as with MF", "Table II", q.lightgcn_at_least, ALL),
    Claim(
        "DPL is better than BNS on MovieLens-100k (MF)",
        "Table III",
        q.better("dpl", "bns", ("ml-100k",), MF),
        ("ml-100k",),
    ),
    Claim("DPL and BNS are similar on MovieLens-1M (MF)", "Table III", q.similar_to_bns, ("ml-1m",)),
    Claim(
        "Hard samples improve DPL a little (MF)",
        "Table III",
        q.better("dpl-hard", "dpl", MOVIELENS, MF),
        MOVIELENS,
    ),
    Claim("Hard samples need a larger τ (MF)", "text", q.hard_needs_tau, MOVIELENS),
    Claim("A larger M helps", "M, N, τ", q.rises("M", ENCODERS), (SWEPT,)),
    Claim("The step from M = 0 to 1 helps most", "M, N, τ", q.first_step, (SWEPT,)),
    Claim("A larger N helps MF", "M, N, τ", q.rises("N", ("mf",)), (SWEPT,)),
    Claim("A larger N hurts LightGCN", "M, N, τ", q.rises("N", ("lightgcn",), falls=True), (SWEPT,)),
    Claim("Over τ, quality rises and then falls", "M, N, τ", q.inverted_u, (SWEPT,)),
    Claim(
        "An epoch of DPL takes only slightly longer than BPR's",
        "running time",
        q.takes("dpl", 0, SLIGHTLY[1]),
    ),
    Claim("An epoch of BNS takes 3 to 5 times BPR's", "running time", q.takes("bns", *SEVERAL)),
)
"""What the paper claims."""

BESIDE = (
    Claim("With equal tuning, DPL is better than BPR", "clean", q.clean_dpl_over_bpr, REPRODUCED),
    Claim("With equal tuning, DPL is the best of the five losses", "clean", q.clean_dpl_best, REPRODUCED),
    Claim(
        "The best sampled model beats the better of EASE and iALS",
        "clean",
        q.beats_reference,
        REPRODUCED,
    ),
)
"""What is asked beside them, of the clean runs."""

THRESHOLDS = f"""\
A claim holds where every case (dataset, encoder, machine) significantly says so, and in part where some
do. “Does not hold here” means that no case significantly says so and at least one significantly says the
opposite; “not shown”, that no case is significant either way. A difference is significant where its
p, corrected by Holm, is below {SIGNIFICANT:g}. p is by Welch's t over seeds, corrected over the cases of
the claim; in the clean runs it is over the same users, corrected over all comparisons of the dataset. A
cell with fewer than {LEAST_SEEDS} seeds has no known spread, and a case without one is not tested.
“Similar” needs a confidence interval of the relative difference within ±{SIMILAR:.0%}, “at least as good”
one above −{SIMILAR:.0%}. “Generally” means {GENERALLY:.0%}
of the cases, “slightly longer” up to {SLIGHTLY[1]:g} times. Quality is {metric_name(NDCG)}; for M, N and
τ it is {metric_name(q.P5)}, as in the paper. Hard samples are soft weights (`DPLHard`); what they need
of τ is asked of the N highest-scored of 5·N candidates (DNS) too, and judged by the last epoch of the
ablation: the authors' raised τ against τ = 0."""


def claims_table(lines: Lines, claims: Sequence[Claim] = CLAIMS) -> str:
    """Each claim, its verdict and the numbers."""
    judged = [(claim, claim.judge(lines)) for claim in claims]
    rows = [[c.text, c.where, v, v.numbers] for c, v in judged]
    return table(["claim", "where", "verdict", "cases, and a - b"], rows)
