"""ItemFacts: what the store says about the items of a model: hidden ones, categories, labels."""

from __future__ import annotations

import threading

import numpy as np
import pyarrow as pa

from truepair.data.ids import Codes
from truepair.errors import StorageError
from truepair.serving.events.reading import StoreReader
from truepair.serving.events.records import ItemRecord, item_table
from truepair.serving.id_texts import IdTexts


class ItemFacts:
    """The records of a model's items, kept in memory. Several threads may ask at once."""

    def __init__(self, items: IdTexts) -> None:
        self.hidden: Codes = np.empty(0, np.int64)
        """Codes of the items that the store hides or has deleted."""
        self._items = items
        self._reader: StoreReader | None = None
        self._unlisted: set[str] = set()
        self._records: dict[str, ItemRecord] | None = None  # read when they are needed first
        self._table: pa.Table | None = None
        self._changed: set[str] = set()
        self._is_old = False  # the store did not answer when it was attached
        self.is_behind = False
        """Whether something that changed could not be read yet."""
        self._lock = threading.RLock()

    def attach(self, reader: StoreReader, former: ItemFacts | None = None) -> None:
        """Use the records of this store. While it does not answer, those of the model before count."""
        with self._lock:
            self._records, self._table = None, None
            try:
                self._unlisted = reader.unlisted_items()
            except StorageError:
                if former is None:
                    raise
                self._unlisted, self._is_old, self.is_behind = set(former._unlisted), True, True
            self._reader = reader
            self._hide()

    def update(self, reader: StoreReader, changed: set[str]) -> None:
        """Read the records of these items again; what fails is read at the next chance."""
        with self._lock:
            self._changed |= changed
            self._table, self.is_behind = None, True
            try:
                if self._is_old:
                    self._unlisted, self._is_old = reader.unlisted_items(), False
                for item in sorted(self._changed):
                    self._read(reader, item)
                    self._changed.discard(item)
                self.is_behind = False
            finally:
                self._hide()

    def _read(self, reader: StoreReader, item: str) -> None:
        if item not in self._items.codes:
            return  # the model cannot list it
        (self._unlisted.add if reader.is_unlisted(item) else self._unlisted.discard)(item)
        if self._records is not None:
            record = reader.record(ItemRecord, item)
            if record is None:
                self._records.pop(item, None)
            else:
                self._records[item] = record

    def _hide(self) -> None:
        codes = (self._items.codes.get(item) for item in self._unlisted)
        self.hidden = np.array(sorted(code for code in codes if code is not None), np.int64)

    def records(self) -> dict[str, ItemRecord]:
        """Item -> record, of the items that the model knows."""
        with self._lock:
            if self._records is None and self._reader is not None:
                known = self._items.codes
                self._records = {
                    record.item: record for record in self._reader.records(ItemRecord) if record.item in known
                }
            return self._records or {}

    def table(self) -> pa.Table | None:
        """The item table of the records, with ids of the model's type; None if there is none."""
        with self._lock:
            if self._table is None and (records := self.records()):
                table = item_table(records.values())
                self._table = table.set_column(0, "item", self._items.typed(table["item"].to_pylist()))
            return self._table
