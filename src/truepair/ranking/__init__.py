"""The only top-k: CPU and CUDA."""

from truepair.ranking.selection import top_k

__all__ = ["top_k"]
