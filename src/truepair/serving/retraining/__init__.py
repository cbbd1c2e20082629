"""Automatic retraining of a served model: train from the store, evaluate, promote unless worse, roll back."""
