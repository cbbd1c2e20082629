"""HTML of values in notebooks: whatever ids and names hold, it is text."""

from truepair.storage.notebook import html_table


def test_texts_are_escaped_and_numbers_shown():
    found = html_table("a <b>", [["<i>", 0.123456, 12345, True]], ["x", "&", "n", "is"])
    head = "<tr><th>x</th><th>&amp;</th><th>n</th><th>is</th></tr>"
    row = "<tr><th>&lt;i&gt;</th><td>0.1235</td><td>12,345</td><td>True</td></tr>"
    table = f"<table><thead>{head}</thead><tbody>{row}</tbody></table>"
    assert found == f"<p>a &lt;b&gt;</p>{table}"
