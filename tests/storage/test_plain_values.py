"""Every value of nested lists and tables, down to the stated depth."""

import pytest

from truepair.errors import InputError
from truepair.storage.plain_values import DEEPEST, every_value


def nested(levels, wrap):
    value = "inside"
    for _ in range(levels):
        value = wrap(value)
    return value


@pytest.mark.parametrize("wrap", [lambda value: [value], lambda value: {"a": value}], ids=["list", "table"])
def test_as_deep_as_stated_and_no_deeper(wrap):
    found = every_value(nested(DEEPEST, wrap))
    assert len(found) == DEEPEST + 1
    assert found[-1] == "inside"
    with pytest.raises(InputError, match=f"more than {DEEPEST} deep"):
        every_value(nested(DEEPEST + 1, wrap))
