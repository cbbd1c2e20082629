"""The processor's name."""

from types import SimpleNamespace

import pytest

from truepair_lab.reporting import machine


@pytest.mark.parametrize(
    ("text", "name"),
    [("processor\t: 0\nmodel name\t: Fast CPU @ 2 GHz\n", "Fast CPU @ 2 GHz"), ("processor\t: 0\n", "arm")],
)
def test_the_processors_name_is_what_the_system_calls_it(text, name, monkeypatch):
    monkeypatch.setattr(machine, "Path", lambda path: SimpleNamespace(read_text=lambda: text))
    monkeypatch.setattr(machine.platform, "processor", lambda: "arm")
    assert machine.cpu_model() == name
