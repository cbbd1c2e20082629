"""Networks over histories: what a user did, item by item -> the state after each event.

Both are causal: a state depends on its own event and earlier ones alone. Both see how far apart two events
are, and not where a history begins, so that the states of a history do not change when events are added.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

import torch
import torch.nn.functional as F  # noqa: N812, the name everybody uses
from torch import Tensor, nn

from truepair.data.log import Histories

_HALF_LIVES = (0.2, 1.0, 3.0, 8.0, 24.0, 72.0)  # in events, with which training starts
_WAVELENGTH = 10_000.0  # of the slowest rotation, over 2π


class PaddedHistories(NamedTuple):
    """Histories on a device, from which rectangles are cut."""

    starts: Tensor  # [n_users + 1]
    items: Tensor

    @staticmethod
    def of(histories: Histories, device: torch.device) -> PaddedHistories:
        """The histories on a device."""
        return PaddedHistories(*(torch.as_tensor(part.astype("int64"), device=device) for part in histories))

    def counts(self, length: int) -> Tensor:
        """The number of events of each user, of which the last `length` count. [n_users]"""
        return self.starts.diff().clamp(max=length)

    def last(self, users: Tensor, length: int) -> tuple[Tensor, Tensor]:
        """The places in `items` of the last `length` events of these users, oldest first, and which of them
        there are: (places [B, L], known [B, L]); L is the largest number of them."""
        ends = self.starts[users + 1]
        counts = (ends - self.starts[users]).clamp(max=length)
        steps = torch.arange(int(counts.max()), device=users.device)
        known = steps < counts[:, None]
        return (ends - counts)[:, None].add(steps).masked_fill(~known, 0), known


class GatedMLP(nn.Module):
    """(silu(x A) ⊙ x B) C."""

    def __init__(self, wide: int, hidden: int, dim: int) -> None:
        super().__init__()
        self.into = nn.Linear(wide, 2 * hidden, bias=False)
        self.out = nn.Linear(hidden, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[…, wide] -> […, dim]"""
        gate, value = self.into(x).chunk(2, dim=-1)
        return self.out(F.silu(gate) * value)  # type: ignore[no-any-return]


class Network(nn.Module):
    """x -> dropout, then x + dropout(block(norm(x))) for each block, then a norm. [B, L, d] -> [B, L, d]"""

    def __init__(self, blocks: Iterable[nn.Module], dim: int, dropout: float) -> None:
        super().__init__()
        self.blocks, self.dropout = nn.ModuleList(blocks), nn.Dropout(dropout)
        self.norms = nn.ModuleList(nn.LayerNorm(dim) for _ in range(len(self.blocks) + 1))

    def forward(self, x: Tensor) -> Tensor:
        """The state after each event."""
        x = self.dropout(x)
        for block, norm in zip(self.blocks, self.norms, strict=False):
            x = x + self.dropout(block(norm(x)))
        return self.norms[-1](x)  # type: ignore[no-any-return]


# --- attention ---------------------------------------------------------------------------------------------


class CausalAttention(nn.Module):
    """Attention to earlier events; queries and keys are rotated by their places, so that their products
    depend on how far apart they are."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.into = nn.Linear(dim, 3 * dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]"""
        parts = self.into(x).view(*x.shape[:2], 3, self.heads, -1)  # [B, L, 3, h, d/h]
        query, key, value = parts.permute(2, 0, 3, 1, 4).unbind()  # [B, h, L, d/h]
        found = F.scaled_dot_product_attention(rotated(query), rotated(key), value, is_causal=True)
        return self.out(found.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]


def rotated(x: Tensor) -> Tensor:
    """Each pair of numbers (k, k + half) of row t, rotated by the angle t · _WAVELENGTH^(-k / half)."""
    length, half = x.shape[-2], x.shape[-1] // 2
    angles = torch.arange(length, device=x.device, dtype=torch.float64)[:, None] * _WAVELENGTH ** (
        -torch.arange(half, device=x.device, dtype=torch.float64) / half
    )
    cos, sin = angles.cos().to(x.dtype), angles.sin().to(x.dtype)  # [L, half]
    a, b = x.chunk(2, dim=-1)
    return torch.cat([a * cos - b * sin, a * sin + b * cos], dim=-1)


def causal_transformer(dim: int, layers: int, heads: int, dropout: float) -> Network:
    """Attention and a gated MLP in turn."""
    pairs = ((CausalAttention(dim, heads), GatedMLP(dim, 2 * dim, dim)) for _ in range(layers))
    return Network((block for pair in pairs for block in pair), dim, dropout)


# --- recurrences -------------------------------------------------------------------------------------------


class Recurrences(nn.Module):
    """Linear recurrences h_t = a h_{t-1} + √(1 - a²) x_t at several real rates a, then a matrix of all.

    All at once they are products with a matrix of powers for each rate; `step` takes one event.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        kept = 0.5 ** (1 / torch.tensor(_HALF_LIVES))
        self.rates = nn.Parameter(kept.logit())  # [K], of which σ is a
        self.out = nn.Linear(len(_HALF_LIVES) * dim, dim, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """[B, L, d] -> [B, L, d]"""
        places = torch.arange(x.shape[1], device=x.device)
        later = places[:, None] - places  # [L, L]
        log_kept = F.logsigmoid(self.rates)[:, None, None]
        powers = (log_kept * later.clamp(min=0)).exp() * (later >= 0) * self.scale()[:, None, None]
        states = (powers.flatten(0, 1) @ x).view(len(x), len(self.rates), *x.shape[1:])  # [B, K, L, d]
        return self.out(states.transpose(1, 2).flatten(2))  # type: ignore[no-any-return]

    def scale(self) -> Tensor:
        """√(1 - a²) of each rate: states have the variance of their inputs. [K]"""
        return (-torch.expm1(2 * F.logsigmoid(self.rates))).sqrt()

    def step(self, x: Tensor, state: Tensor) -> tuple[Tensor, Tensor]:
        """One event x [B, d] after the state [B, K, d]: the output [B, d] and the next state."""
        state = self.rates.sigmoid()[:, None] * state + self.scale()[:, None] * x[:, None]
        return self.out(state.flatten(1)), state


class RecurrentNetwork(Network):
    """Recurrences and a gated MLP in turn; its state takes one event at a time."""

    def __init__(self, dim: int, layers: int, dropout: float) -> None:
        pairs = ((Recurrences(dim), GatedMLP(dim, 2 * dim, dim)) for _ in range(layers))
        super().__init__((block for pair in pairs for block in pair), dim, dropout)

    def step(self, x: Tensor, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """One event x [B, d] after the state [layers, B, K, d]; None: it is the first. Without dropout."""
        if state is None:
            state = x.new_zeros(len(self.blocks) // 2, len(x), len(_HALF_LIVES), x.shape[1])
        after: list[Tensor] = []
        for block, norm in zip(self.blocks, self.norms, strict=False):
            if isinstance(block, Recurrences):
                change, now = block.step(norm(x), state[len(after)])
                after.append(now)
            else:
                change = block(norm(x))
            x = x + change
        return self.norms[-1](x), torch.stack(after)
