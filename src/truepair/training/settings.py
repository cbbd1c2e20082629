"""Settings: one frozen, validated description of a training run."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import torch

from truepair.errors import InputError, check_whole, settle
from truepair.losses.base import check_parameters, choice, number, whole

Schedule = Literal["constant", "step", "linear", "cosine"]
OptimizerState = Literal["device", "half", "host"]


@dataclass(frozen=True)
class Settings:
    """How to train, apart from encoder, loss and sampler.

    batch_size              anchors of a step; in full-catalogue training users, each with all its anchors.
    n_extra, n_unlabelled   M and N of a data entry. A loss that does not use extra positives draws none, and
                            full-catalogue training uses neither.
    learning_rate, schedule "constant"; "step": times `decay` from epoch `decay_epoch` on;
                            "linear": to 0 over all epochs; "cosine": to 0 along half a cosine.
    weight_decay            L2 on all parameters in every step, added to the gradient (the paper's).
    l2_users, l2_items      L2 on the rows a data entry touches: ½·l2·‖e‖², added to the entry's loss.
    dislike_weight          full-catalogue training: as how many unlabelled items a disliked item counts.
    optimizer_state         full-catalogue training of MF with Adam: where Adam's two means of each number of
                            users' vectors are: "device"; "half": there, in half the precision; "host": in
                            main memory.
    patience                stop when the validation metric has not improved for so many epochs.
    validate_every          epochs between two validations.
    device                  "auto" is CUDA where there is one, else the CPU.
    """

    epochs: int = whole(100, 1)
    batch_size: int = whole(1024, 1)
    n_extra: int = whole(5, 0, 10_000, symbol=" (M)")
    n_unlabelled: int = whole(5, 1, 1_000_000, symbol=" (N)")
    optimizer: Literal["adam", "sgd", "adagrad"] = choice("adam", "sgd", "adagrad")
    learning_rate: float = number(1e-3, 0, open_low=True)
    schedule: Schedule = choice("constant", "step", "linear", "cosine")
    decay_epoch: int = whole(100, 0)
    decay: float = number(0.1, 0, 1, open_low=True)
    weight_decay: float = number(0.0, 0)
    l2_users: float = number(0.0, 0)
    l2_items: float = number(0.0, 0)
    dislike_weight: float = number(1.0, 0, 1e6, open_low=True)
    optimizer_state: OptimizerState = choice("device", "half", "host")
    patience: int | None = None
    validate_every: int = whole(1, 1)
    seed: int = whole(0, 0, 2**63 - 1)
    device: str = "auto"

    def __post_init__(self) -> None:
        check_parameters(self)
        if self.patience is not None:
            patience = check_whole("patience", self.patience, 1, remedy="None trains all epochs.")
            settle(self, patience=patience)
        self.torch_device()

    def learning_rate_at(self, epoch: int) -> float:
        """The learning rate of an epoch, counted from 0."""
        if self.schedule == "step":
            return self.learning_rate * (self.decay if epoch >= self.decay_epoch else 1.0)
        if self.schedule == "linear":
            return self.learning_rate * (1 - epoch / self.epochs)
        if self.schedule == "cosine":
            return self.learning_rate * (1 + math.cos(math.pi * epoch / self.epochs)) / 2
        return self.learning_rate

    def torch_device(self) -> torch.device:
        """The device to train on."""
        if self.device == "auto":
            return torch.device("cuda" if torch.cuda.is_available() else "cpu")
        if not isinstance(self.device, str) or not re.fullmatch(r"cpu|cuda(:\d+)?", self.device):
            raise InputError(f"device = {self.device!r} is not known; use 'auto', 'cpu', 'cuda' or 'cuda:0'.")
        if self.device != "cpu" and not torch.cuda.is_available():
            raise InputError(f"device = {self.device!r}: PyTorch sees no CUDA device; use 'cpu' or 'auto'.")
        return torch.device(self.device)
