"""The API of Gorse, so that programs written for it run unchanged."""
