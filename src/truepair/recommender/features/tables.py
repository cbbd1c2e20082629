"""Feature tables of a fit: read against its interactions, and handed to the encoder that learns from them."""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.tables.features import Features
from truepair.errors import InputError
from truepair.models.encoders import Encoder, Hybrid


class FeatureTables(NamedTuple):
    """The features of users and of items, by code; None where there are none."""

    users: Features | None = None
    items: Features | None = None

    @staticmethod
    def of(encoder: object, train: Interactions, items: Any, users: Any) -> FeatureTables:
        """The tables of a fit on these pairs; raise if the encoder needs them and has none, or the reverse.

        Statistics and vocabularies are those of items and users with a pair in `train`.
        """
        given = [
            name for name, table in (("item_features", items), ("user_features", users)) if table is not None
        ]
        check_tables(encoder, given)
        return FeatureTables(
            None if users is None else Features.of(users, train.user_ids, train.user_counts > 0, "user"),
            None if items is None else Features.of(items, train.item_ids, train.item_counts > 0, "item"),
        )

    def given_to(self, encoder: Encoder, users: Codes | None = None) -> Encoder:
        """The encoder with these features; `users` are the codes of those that it is trained on."""
        if not isinstance(encoder, Hybrid) or self == NO_TABLES:
            return encoder
        of_users = self.users if self.users is None or users is None else self.users.take(users)
        return dataclasses.replace(encoder, user_features=of_users, item_features=self.items)

    @property
    def digests(self) -> list[str | None]:
        """Checksums, for files that belong to a fit with these tables."""
        return [None if features is None else features.digest for features in self]


NO_TABLES = FeatureTables()


def check_tables(encoder: object, given: list[str]) -> None:
    """Raise if the encoder needs features and none are given, or if given ones have no effect."""
    if isinstance(encoder, Hybrid):
        if not given:
            raise InputError(
                "encoder = 'hybrid' needs features: pass item_features, user_features or both to fit (on the "
                "command line, --item-features FILE to `truepair fit`); without features, use 'mf'."
            )
        if encoder.user_features or encoder.item_features:
            raise InputError("encoder = Hybrid(…) has features already; pass the tables to fit instead.")
    elif given:
        raise InputError(
            f"{given[0]} has no effect: encoder = {encoder!r} does not learn from features; use 'hybrid', or "
            "fit without and pass a table of all items to add_items."
        )
