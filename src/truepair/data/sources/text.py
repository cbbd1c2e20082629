"""Text files: lines of fields, or of a user and their items -> raw columns of text."""

from __future__ import annotations

import csv
import io
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from truepair.data.columns import BY_POSITION, Raw
from truepair.data.interactions import Step
from truepair.data.sources.file_opening import HEAD, File
from truepair.errors import InputError

SEPARATORS = ",;\t|"
"""The characters that may separate the fields of a line."""

_BLOCK = 1 << 23  # bytes; no row may be longer than a block


def read_csv(file: File) -> Raw:
    """Fields separated by `,` `;` tab or `|`: the one that is most frequent in the first line."""
    first = re.sub(r'"[^"]*"', "", file.first_lines[0])
    return read_delimited(file, max(SEPARATORS, key=first.count))


def read_movielens(file: File) -> Raw:
    """Fields separated by `::`, without quotes."""
    # Arrow splits at a single byte, so the unit separator replaces the two colons
    return read_delimited(file, "\x1f", file.text.replace(b"::", b"\x1f"), quoted=False)


def read_recbole(file: File) -> Raw:
    """Fields separated by tabs, below a header such as `user_id:token`."""
    return read_delimited(file, "\t", clean_name=lambda cell: cell.split(":")[0].strip())


def read_delimited(
    file: File,
    separator: str,
    text: bytes | None = None,
    *,
    quoted: bool = True,
    clean_name: Callable[[str], str] = str.strip,
) -> Raw:
    """Fields separated by one character; all cells stay text. `clean_name` cleans a cell of the header."""
    whole = _Lines(file.path, file.text if text is None else text, separator, quoted)
    first, *more = [cells for _, cells in itertools.islice(whole.records(HEAD), 2)]
    names = [clean_name(cell) for cell in first]
    header = file.is_header(names)
    if header and not more:
        raise InputError(f"{file.path} has a header ({', '.join(names)}) but no rows; give at least one row.")
    if not header:
        names = [*BY_POSITION[: len(first)], *(f"column {at}" for at in range(len(BY_POSITION), len(first)))]
    lines, note = replace(whole, header=header, width=len(names)), _note(header, len(names))
    path = str(file.path)
    return Raw(path, names, lines.columns, lines.place, typed=False, note=note, batches=lines.batches)


def read_adjacency(file: File) -> Raw:
    """Ids separated by spaces: each line is a user followed by their items."""
    whole = pa.array([file.text], pa.large_binary()).cast(pa.large_string())
    lines = pc.ascii_trim_whitespace(pc.split_pattern(whole, "\n").flatten())
    nonblank = np.flatnonzero(pc.not_equal(lines, "").to_numpy(zero_copy_only=False))
    tokens = pc.ascii_split_whitespace(lines.take(pa.array(nonblank)))
    lengths = pc.list_value_length(tokens).to_numpy()
    starts = np.cumsum(lengths) - lengths
    flat = tokens.flatten()
    is_item = np.ones(len(flat), dtype=bool)
    is_item[starts] = False
    line_of = np.repeat(np.arange(len(lengths)), lengths - 1)
    users = flat.take(pa.array(starts))
    columns = [users.take(pa.array(line_of)), flat.filter(pa.array(is_item))]
    without_items = pc.count_distinct(users).as_py() - pc.count_distinct(columns[0]).as_py()
    return Raw(
        str(file.path),
        BY_POSITION[:2],
        lambda positions: [columns[at] for at in positions],
        lambda row: f"line {nonblank[line_of[row]] + 1}",
        typed=False,
        steps=(Step("line of a user without items", 0, without_items),) if without_items else (),
        order="user",
    )


@dataclass(frozen=True)
class _Lines:
    path: Path
    text: bytes
    separator: str
    quoted: bool
    header: bool = False
    width: int = 0

    def columns(self, positions: Sequence[int]) -> Sequence[pa.ChunkedArray]:
        """The columns at `positions`, read by Arrow."""
        options = self._arrow_options(positions)
        try:
            return list(pa_csv.read_csv(self._stream(), *options).columns)
        except pa.ArrowInvalid as error:
            raise self._field_count_error(error) from error

    def batches(self, positions: Sequence[int]) -> Iterator[Sequence[pa.Array]]:
        """The columns at `positions`, a block of lines at a time."""
        options = self._arrow_options(positions)
        try:
            with pa_csv.open_csv(self._stream(), *options) as reader:
                for batch in reader:
                    yield list(batch.columns)
        except pa.ArrowInvalid as error:
            raise self._field_count_error(error) from error

    def _arrow_options(self, positions: Sequence[int]) -> tuple[object, ...]:
        """How Arrow reads the text."""
        keys = [str(at) for at in range(self.width)]
        read = pa_csv.ReadOptions(
            column_names=keys, skip_rows_after_names=int(self.header), block_size=_BLOCK
        )
        parse = pa_csv.ParseOptions(
            delimiter=self.separator,
            quote_char='"' if self.quoted else False,
            newlines_in_values=self.quoted and b'"' in self.text,
        )
        convert = pa_csv.ConvertOptions(
            column_types=dict.fromkeys(keys, pa.large_string()),
            include_columns=[keys[at] for at in positions],
        )
        if self.quoted and self.text.count(b'"') % 2:
            self._check_last_quote()
        return read, parse, convert

    def _stream(self) -> pa.BufferReader:
        # a leading blank line would be skipped in place of the header
        return pa.BufferReader(self.text.lstrip(b"\r\n"))

    def place(self, row: int) -> str:
        """The physical line of a row."""
        try:
            return f"line {next(itertools.islice(self.records(), row + self.header, None))[0]}"
        except (csv.Error, StopIteration):  # a field too long for csv, or other quotes than Arrow's
            return f"row {row + 1}"

    def _check_last_quote(self) -> None:
        """Raise an error if a quote is never closed: the rest of the file would be one cell."""
        lines: list[int] = [0]
        try:
            lines.extend(line for line, _ in self.records(strict=True))
        except csv.Error as error:
            if "unexpected end of data" in str(error):
                raise InputError(f"{self.path}: a quote after line {lines[-1]} is open; close it.") from error

    def records(self, size: int | None = None, strict: bool = False) -> Iterator[tuple[int, list[str]]]:
        """(physical line, cells) of each nonblank record. Slow: used for first lines and for errors."""
        stream = io.TextIOWrapper(io.BytesIO(self.text[:size]), "utf-8", errors="replace", newline="")
        quoting: Literal[0, 3] = csv.QUOTE_MINIMAL if self.quoted else csv.QUOTE_NONE
        reader = csv.reader(stream, delimiter=self.separator, quoting=quoting, strict=strict)
        line = 1
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1

    def _field_count_error(self, error: Exception) -> InputError:
        # Arrow counts neither blank lines nor newlines within quotes, so its row number is not the line
        with suppress(csv.Error):
            for line, cells in self.records():
                if len(cells) != self.width:
                    return InputError(
                        f"{self.path}, line {line}: expected {self.width} fields, as in the first line, "
                        f"found {len(cells)}. Correct that line, or name the file's format with format=…."
                    )
        return InputError(f"{self.path} cannot be parsed: {error}.")


def _note(header: bool, width: int) -> str:
    if width == 1:
        return f" Only one column was found; the known separators are {', '.join(map(repr, SEPARATORS))}."
    if header:
        return " The first line was taken as the header; if it is data, pass header=False."
    return " The first line was taken as data; if it is a header, pass header=True."
