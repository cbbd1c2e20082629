"""What the demo takes for known, and the processor's name."""

from types import SimpleNamespace

import pytest

from truepair.data.split_recipes import split_random
from truepair.reporting import machine
from truepair.reporting.demo_result import DemoData
from worlds import two_tastes


def test_lists_of_the_demo_repeat_neither_train_nor_validation():
    split = split_random(two_tastes(), test=0.2, valid=0.1)
    assert DemoData("a world", split, ()).known == [split.train, split.valid]


@pytest.mark.parametrize(
    ("text", "name"),
    [("processor\t: 0\nmodel name\t: Fast CPU @ 2 GHz\n", "Fast CPU @ 2 GHz"), ("processor\t: 0\n", "arm")],
)
def test_the_processors_name_is_what_the_system_calls_it(text, name, monkeypatch):
    monkeypatch.setattr(machine, "Path", lambda path: SimpleNamespace(read_text=lambda: text))
    monkeypatch.setattr(machine.platform, "processor", lambda: "arm")
    assert machine.cpu_model() == name
