"""HTTP: requests, answers, and what stands before them."""
