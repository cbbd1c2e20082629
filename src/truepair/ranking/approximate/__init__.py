"""Approximate top-k: an index over the items, used only where its measured recall is high enough."""

from truepair.ranking.approximate.indexed_items import IndexedItems
from truepair.ranking.approximate.indexing import index_items

__all__ = ["IndexedItems", "index_items"]
