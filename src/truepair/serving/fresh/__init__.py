"""A model that stays fresh: retrained from the store, judged, promoted if it is not worse, rolled back."""
