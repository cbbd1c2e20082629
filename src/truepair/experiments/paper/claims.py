"""Claims: what the paper says, and what the lines say of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truepair.experiments.lines import Lines
from truepair.experiments.paper import questions as q
from truepair.experiments.paper.cells import GENERALLY, NDCG, P_SURE, SEVERAL, SIMILAR, SLIGHTLY, SURE
from truepair.experiments.paper.words import metric_name, table

MF = ("mf",)  # the encoder of Table III
MARKS = ("holds", "holds in part", "does not hold here", "not tested")


@dataclass(frozen=True)
class Verdict:
    """One of MARKS, and the numbers behind it."""

    mark: str
    numbers: str


@dataclass(frozen=True)
class Claim:
    """What is claimed, where, and how to ask the lines; `enough` is the share of answers that must be yes."""

    text: str
    where: str
    ask: q.Ask
    enough: float = 1.0
    neither_counts: bool = False  # "at least as good": no difference is a yes

    def judge(self, lines: Lines) -> Verdict:
        """The claim's verdict on these lines."""
        answers = list(self.ask(lines))
        if not answers:
            return Verdict("not tested", "no lines")
        yes = sum(answer.sign > 0 or (self.neither_counts and answer.sign == 0) for answer in answers)
        held = yes / len(answers) >= self.enough
        mark = "holds" if held else "holds in part" if yes else "does not hold here"
        return Verdict(mark, "<br>".join([f"{yes} of {len(answers)}:", *(a.text for a in answers if a.text)]))


CLAIMS = (
    Claim("DPL is the best of the five losses", "Table II", q.dpl_is_best),
    Claim("InfoNCE is at least as good as BPR", "Table II", q.better("infonce", "bpr"), neither_counts=True),
    Claim("InfoNCE gains more over BPR on large, sparse data", "Table II", q.more_on_sparse),
    Claim("DCL is better than BPR", "Table II", q.better("dcl", "bpr")),
    Claim("DCL is better than InfoNCE", "Table II", q.better("dcl", "infonce")),
    Claim("Debiased losses generally beat those without", "Table II", q.debiased, enough=GENERALLY),
    Claim("HCL is better than DCL", "Table II", q.better("hcl", "dcl")),
    Claim(
        "With LightGCN, DPL is at least as good as with MF",
        "Table II",
        q.lightgcn_at_least,
        neither_counts=True,
    ),
    Claim(
        "DPL is better than BNS on MovieLens-100k (MF)", "Table III", q.better("dpl", "bns", ("ml-100k",), MF)
    ),
    Claim("DPL and BNS are similar on MovieLens-1M (MF)", "Table III", q.similar_to_bns),
    Claim("Hard samples improve DPL a little (MF)", "Table III", q.better("dpl-hard", "dpl", encoders=MF)),
    Claim("A larger M helps", "M, N, τ", q.rises("M", q.BOTH)),
    Claim("The step from M = 0 to 1 helps most", "M, N, τ", q.first_step),
    Claim("A larger N helps MF", "M, N, τ", q.rises("N", ("mf",))),
    Claim("A larger N hurts LightGCN", "M, N, τ", q.rises("N", ("lightgcn",), falls=True)),
    Claim("Over τ, quality rises and then falls", "M, N, τ", q.inverted_u),
    Claim(
        "An epoch of DPL takes only slightly longer than BPR's",
        "running time",
        q.takes("dpl", 0, SLIGHTLY[1]),
    ),
    Claim("An epoch of BNS takes 3 to 5 times BPR's", "running time", q.takes("bns", *SEVERAL)),
)
"""What the paper claims."""

OURS = (
    Claim("Tuned alike, DPL is better than BPR", "clean", q.clean_dpl_over_bpr),
    Claim("Tuned alike, DPL is the best of the five losses", "clean", q.clean_dpl_best),
    Claim("The best model trained on samples beats the better of EASE and iALS", "clean", q.beats_reference),
)
"""What we ask beside it, of the clean runs."""

THRESHOLDS = (
    f"A difference counts when it is larger than {SURE:g} standard errors over seeds or, where the same "
    f"users were compared, when its corrected p is below {P_SURE:g}. A cell with one seed borrows the "
    f"largest spread of its dataset. “Similar” is within {SIMILAR:.0%}, “generally” in {GENERALLY:.0%} of "
    f"the cases, “slightly longer” up to {SLIGHTLY[1]:g} times. A claim holds where every case (dataset, "
    f"encoder, machine) says so, in part where some do. Quality is {metric_name(NDCG)}; for M, N and τ it is "
    f"{metric_name(q.P5)}, as in the paper's figure."
)


def claims_table(lines: Lines, claims: Sequence[Claim] = CLAIMS) -> str:
    """Each claim, its verdict and the numbers."""
    judged = [(claim, claim.judge(lines)) for claim in claims]
    rows = [[c.text, c.where, f"**{v.mark}**", v.numbers] for c, v in judged]
    return table(["claim", "where", "verdict", "cases, and a - b"], rows)
