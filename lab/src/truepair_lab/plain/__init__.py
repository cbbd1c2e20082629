"""The plain call: `Recommender()` without any setting, against tuned EASE and tuned iALS."""
