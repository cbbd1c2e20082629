"""The readable PyTorch loop: the specification of every sampled engine."""
