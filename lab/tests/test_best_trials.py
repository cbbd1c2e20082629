"""Which trial is the best, and how long the paper's protocol trains with its settings."""

from truepair_lab.lines import Lines, TrialLine
from truepair_lab.paper.running.plan import optimistic
from truepair_lab.searching import best_trials


def trial(number, state, score):
    return TrialLine(
        "data", "mf", "dpl", number, state, {"dim": number}, score, 5, [], "split", "cpu", "CPU", 1.0
    )


def test_the_best_trial_is_a_complete_one_and_of_equal_ones_the_first():
    lines = [trial(0, "pruned", 0.9), trial(1, "complete", 0.2), trial(3, "complete", 0.4)]
    lines += [trial(2, "complete", 0.4), trial(4, "failed", None)]
    found = best_trials(Lines(trials=lines))
    assert {place: best.number for place, best in found.items()} == {("data", "mf", "dpl"): 2}


def test_the_papers_protocol_trains_half_as_long_again_in_steps_of_five():
    for epoch, epochs in ((2, 5), (10, 15), (40, 60), (41, 65)):
        found = optimistic({"parameters": {"dim": 8, "patience": 3}, "epoch": epoch})
        assert found == {"dim": 8, "epochs": epochs, "patience": None, "validate_every": 5}
