"""ChebyCF: a closed form on the graph of items, a polynomial of its Laplacian applied to a user's history.

    s_u = (x_u D^-β) [ p(L) + α V Vᵀ ] D^β,   L = I − R̃ᵀR̃,   R̃ = D_u^-½ X D^-½

x_u is the 0/1 history, D and D_u the numbers of pairs of items and users. L has eigenvalues λ from 0 (smooth
over the graph) to 1. p is a polynomial of degree K, a Chebyshev series in 2λ − 1, that follows a plateau:
1 at λ = 0, 0 at λ = 1, the flatter around ½ the larger the flatness φ. V are the η eigenvectors with the
lowest λ: an ideal low-pass. (Kim et al., Graph Spectral Filtering with Chebyshev Interpolation for
Recommendation, SIGIR 2025; published for Gowalla: K = 8, φ = 1.5, η = 512, α = .2, β = .4.)
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from truepair.data.interactions import Interactions
from truepair.errors import check_number, check_whole, settle
from truepair.models.factor_matrices import check_room
from truepair.models.sparse_products import Graph

Floats = npt.NDArray[np.float64]
_DENSE = 8192  # items: up to here all eigenvectors are computed
_MORE = 64  # vectors beyond those that are asked for: the last ones converge slowest
_ITERATIONS, _DEGREE = 10, 8  # of the subspace, and of the polynomial that amplifies low λ in each
_BLOCK = 4096  # columns of a dense matrix that one sparse product has


@dataclass(frozen=True)
class ChebyCF:
    """The parameters of ChebyCF.

    order     K, the degree of the polynomial
    flatness  φ of the plateau
    vectors   η, how many eigenvectors pass the ideal filter
    ideal     α, the weight of the ideal filter
    power     β, how much the popularity of items counts
    """

    order: int = 8
    flatness: float = 1.5
    vectors: int = 512
    ideal: float = 0.2
    power: float = 0.4

    def __post_init__(self) -> None:
        whole = {
            "order": check_whole("order", self.order, 1),
            "vectors": check_whole("vectors", self.vectors, 0),
        }
        positive = {"flatness": check_number("flatness", self.flatness, 0, open_low=True)}
        weights = {name: check_number(name, getattr(self, name), 0) for name in ("ideal", "power")}
        settle(self, **whole, **positive, **weights)

    def coefficients(self) -> Floats:
        """c_0 … c_K of p(λ) = Σ c_k T_k(2λ − 1).

        The plateau is ½ (1 − sign(x) |x|^φ) at x = −cos(jπ/K), which include both ends, j = 0 … K. The series
        takes these values at the K + 1 zeros of T_(K+1), in the same order, as the published settings expect:
        p follows a plateau that is slightly narrower.
        """
        at = np.arange(self.order + 1)
        x = -np.cos(at * np.pi / self.order)
        plateau = 0.5 * (1 - np.sign(x) * np.abs(x) ** self.flatness)
        angles = np.pi - (at + 0.5) * np.pi / (self.order + 1)  # of the zeros, from −1 to 1
        found = 2 / (self.order + 1) * np.cos(np.outer(at, angles)) @ plateau
        found[0] /= 2
        return np.asarray(found)


class ItemGraph:
    """The graph of the items of some interactions, on a device; what trials share is kept."""

    def __init__(self, data: Interactions, device: torch.device | str = "cpu") -> None:
        self.data, self.device = data, torch.device(device)
        self._graph = Graph(data, self.device)
        self._lowest: Tensor | None = None
        self._filter: tuple[tuple[int, float], Tensor] | None = None

    def smooth(self, signal: Tensor) -> Tensor:
        """R̃ᵀR̃ = I − L times columns of signals, [n_items, n]."""
        parts = torch.split(signal, _BLOCK, dim=1)
        return torch.cat([self._graph.to_items @ (self._graph.to_users @ part) for part in parts], dim=1)

    @cached_property
    def spectrum(self) -> tuple[Tensor, Tensor]:
        """All eigenvalues of R̃ᵀR̃, the highest first, [n_items], and its eigenvectors, as columns."""
        dense = self.smooth(torch.eye(self.data.n_items, device=self.device)).double()
        values, vectors = torch.linalg.eigh((dense + dense.T) / 2)
        return values.flip(0), vectors.flip(1).float()

    def lowest(self, n: int) -> Tensor:
        """The n eigenvectors of the lowest λ, [n_items, n]."""
        n = min(n, self.data.n_items)
        if self.data.n_items <= _DENSE:
            return self.spectrum[1][:, :n]
        if self._lowest is None or self._lowest.shape[1] < n:
            self._lowest = self._iterated(n)
        return self._lowest[:, :n]

    def _iterated(self, n: int) -> Tensor:
        """The same, by iteration of a subspace: what is below its lowest eigenvalue shrinks in each."""
        drawn = torch.Generator().manual_seed(0)
        width = min(n + _MORE, self.data.n_items)
        basis = torch.randn(self.data.n_items, width, generator=drawn).to(self.device)
        basis = torch.linalg.qr(self.smooth(basis))[0]
        for _ in range(_ITERATIONS):
            below = max(float(torch.linalg.eigvalsh((basis.T @ self.smooth(basis)).double())[0]), 1e-6)
            basis = torch.linalg.qr(
                chebyshev(lambda s, below=below: self.smooth(s) * (2 / below) - s, basis, _DEGREE)  # type: ignore[misc]
            )[0]
        _, turned = torch.linalg.eigh((basis.T @ self.smooth(basis)).double())
        found: Tensor = basis @ turned.flip(1).to(basis.dtype)
        return found[:, :n]

    def filter(self, settings: ChebyCF) -> Tensor:
        """p(L), [n_items, n_items]; the last one is kept."""
        key = settings.order, settings.flatness
        if self._filter is None or self._filter[0] != key:
            self._filter = None  # its memory is needed
            self._filter = key, self._polynomial(settings.coefficients())
        return self._filter[1]

    def _polynomial(self, coefficients: Floats) -> Tensor:
        n = self.data.n_items
        check_room(f"ChebyCF of {n:,} items", 12 * n * n, self.device, "keep fewer items (core=…)")
        if n <= _DENSE:
            values, vectors = self.spectrum
            response = np.polynomial.chebyshev.chebval(1 - 2 * values.cpu().numpy(), coefficients)
            return vectors * torch.as_tensor(response, dtype=vectors.dtype, device=self.device) @ vectors.T
        found = torch.empty(n, n, device=self.device)
        for start in range(0, n, _BLOCK):
            columns = slice(start, min(start + _BLOCK, n))
            unit = torch.zeros(n, columns.stop - start, device=self.device)
            unit[columns].fill_diagonal_(1.0)
            found[columns] = series(lambda s: s - 2 * self.smooth(s), unit, coefficients).T  # it is symmetric
        return found

    def weights(self, settings: ChebyCF) -> Tensor:
        """D^-β [p(L) + α V Vᵀ] D^β, [n_items, n_items]: row i is what item i adds to all scores."""
        found, counts = self.filter(settings), np.maximum(self.data.item_counts, 1.0)
        power = torch.as_tensor(counts**settings.power, dtype=found.dtype, device=self.device)
        if settings.ideal and settings.vectors:
            lowest = self.lowest(settings.vectors)
            found = torch.addmm(found, lowest, lowest.T, alpha=settings.ideal)
        else:
            found = found.clone()
        return found.mul_(power).div_(power[:, None])


def chebyshev(operator: Callable[[Tensor], Tensor], signal: Tensor, degree: int) -> Tensor:
    """T_degree of a linear operator, applied to a signal."""
    before, now = signal, operator(signal)
    for _ in range(1, degree):
        before, now = now, 2 * operator(now) - before
    return now


def series(operator: Callable[[Tensor], Tensor], signal: Tensor, coefficients: Floats) -> Tensor:
    """Σ c_k T_k(operator) applied to a signal."""
    before, now = signal, operator(signal)
    found: Tensor = coefficients[0] * before + coefficients[1] * now
    for coefficient in coefficients[2:]:
        before, now = now, 2 * operator(now) - before
        found += coefficient * now
    return found
