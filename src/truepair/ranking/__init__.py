"""Top-k: the only implementation, on the CPU and on CUDA."""

from truepair.ranking.selection import top_k

__all__ = ["top_k"]
