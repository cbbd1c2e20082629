"""Feature tables of a fit: read against its interactions, and handed to the encoder that learns from them."""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

from truepair.data.ids import Codes
from truepair.data.interactions import Interactions
from truepair.data.tables.features import Features
from truepair.errors import InputError
from truepair.models.encoders import Encoder, Hybrid
from truepair.storage.types import Table


class FeatureTables(NamedTuple):
    """The features of users and of items, by code; None where there are none."""

    users: Features | None = None
    items: Features | None = None

    @staticmethod
    def of(encoder: object, train: Interactions, items: Table, users: Table) -> FeatureTables:
        """The tables of a fit on these pairs; raise if the encoder needs them and has none, or the reverse.

        Statistics and vocabularies are those of items and users with a pair in `train`.
        """
        if not isinstance(encoder, Hybrid):
            if items is not None or users is not None:
                given = "user_features" if items is None else "item_features"
                raise InputError(
                    f"{given} has no effect: encoder = {encoder!r} uses no features; use 'hybrid'."
                )
            return NO_TABLES
        if items is None and users is None:
            raise InputError("encoder = 'hybrid' needs features: pass item_features or user_features to fit.")
        if encoder.user_features or encoder.item_features:
            raise InputError("encoder = Hybrid(…) has features already; pass the tables to fit instead.")
        return FeatureTables(
            None if users is None else Features.of(users, train.user_ids, train.user_counts > 0, "user"),
            None if items is None else Features.of(items, train.item_ids, train.item_counts > 0, "item"),
        )

    def given_to(self, encoder: Encoder, users: Codes | None = None) -> Encoder:
        """The encoder with these features; `users` are the codes of those that it is trained on."""
        if self is NO_TABLES or not isinstance(encoder, Hybrid):
            return encoder
        of_users = self.users if self.users is None or users is None else self.users.take(users)
        return dataclasses.replace(encoder, user_features=of_users, item_features=self.items)


NO_TABLES = FeatureTables()
