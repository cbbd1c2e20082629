"""What the demo takes for known."""

from truepair.data.split_recipes import split_random
from truepair.reporting.demo_page import DemoData
from worlds import two_tastes


def test_lists_of_the_demo_repeat_neither_train_nor_validation():
    split = split_random(two_tastes(), test=0.2, valid=0.1)
    assert DemoData("a world", split, ()).known == [split.train, split.valid]
