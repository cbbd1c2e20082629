"""The options of commands that read a source are those of `read_interactions`."""

from dataclasses import fields

from truepair.cli.sources import Reading
from truepair.data.rows.options import ReadOptions


def test_the_command_line_has_every_option_of_reading():
    options = {each.name for each in fields(Reading)} - {"data_dir"}
    assert options == {each.name for each in fields(ReadOptions)}
