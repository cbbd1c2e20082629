"""Running the studies of the paper: searches, runs, comparisons, timings."""
