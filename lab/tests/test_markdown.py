"""Markdown: tables and numbers."""

from truepair_lab.markdown import csv_text, details, joined, share, short, signed, table, unread


def test_a_vertical_bar_in_a_cell_is_escaped_and_numbers_stand_right():
    assert table(["a"], [["x|y"]]).splitlines()[-1] == "| x\\|y |"
    assert table(["", "n"], [["a", 1]], numbers=True).splitlines() == [
        "|  | n |",
        "| --- | ---: |",
        "| a | 1 |",
    ]


def test_a_csv_file_has_six_digits_and_quotes():
    text = csv_text(["a", "b, c"], [["x, y", 1 / 3], [None, 2]])
    assert text == 'a,"b, c"\n"x, y",0.333333\n,2\n'


def test_numbers_are_short():
    assert [share(x) for x in (0.10042, 5e-8, 0.6, 1.0, 0.00132)] == [".1", "0", ".6", "1", ".00132"]
    assert [short(x) for x in (0.43382, -0.012, 1.5, -0.00001)] == [".4338", "-.0120", "1.5000", ".0000"]
    assert [signed(x) for x in (0.01, -0.01, 0.0, -0.00001)] == ["+.0100", "-.0100", "+.0000", "+.0000"]


def test_parts_of_a_page():
    assert joined("a", "", "b") == "a\n\nb"
    assert details("more", "x").startswith("<details>\n<summary>more</summary>\n\nx")
    assert unread([]) == ""
    assert unread(["a, line 1: torn"]) == "Lines that could not be read: a, line 1: torn."
