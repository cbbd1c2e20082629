"""The paper's three lemmas, checked by experiment on made-up scores whose truth is known."""
