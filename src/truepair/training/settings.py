"""Settings: one frozen, validated description of a training run."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Literal

import torch

from truepair.errors import InputError, check_choice, check_number, check_whole, settle

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

    epochs: int = 100
    batch_size: int = 1024
    n_extra: int = 5
    n_unlabelled: int = 5
    optimizer: Literal["adam", "sgd", "adagrad"] = "adam"
    learning_rate: float = 1e-3
    schedule: Schedule = "constant"
    decay_epoch: int = 100
    decay: float = 0.1
    weight_decay: float = 0.0
    l2_users: float = 0.0
    l2_items: float = 0.0
    dislike_weight: float = 1.0
    optimizer_state: OptimizerState = "device"
    patience: int | None = None
    validate_every: int = 1
    seed: int = 0
    device: str = "auto"

    def __post_init__(self) -> None:
        check_choice("optimizer", self.optimizer, ["adam", "sgd", "adagrad"])
        check_choice("optimizer_state", self.optimizer_state, ["device", "half", "host"])
        check_choice("schedule", self.schedule, ["constant", "step", "linear", "cosine"])
        patience = self.patience
        if patience is not None:
            patience = check_whole("patience", patience, 1, remedy="None trains all epochs.")
        settle(
            self,
            epochs=check_whole("epochs", self.epochs, 1),
            batch_size=check_whole("batch_size", self.batch_size, 1),
            n_extra=check_whole("n_extra (M)", self.n_extra, 0, 10_000),
            n_unlabelled=check_whole("n_unlabelled (N)", self.n_unlabelled, 1, 1_000_000),
            learning_rate=check_number("learning_rate", self.learning_rate, 0, open_low=True),
            decay_epoch=check_whole("decay_epoch", self.decay_epoch, 0),
            decay=check_number("decay", self.decay, 0, 1, open_low=True),
            weight_decay=check_number("weight_decay", self.weight_decay, 0),
            l2_users=check_number("l2_users", self.l2_users, 0),
            l2_items=check_number("l2_items", self.l2_items, 0),
            dislike_weight=check_number("dislike_weight", self.dislike_weight, 0, 1e6, open_low=True),
            patience=patience,
            validate_every=check_whole("validate_every", self.validate_every, 1),
            seed=check_whole("seed", self.seed, 0, 2**63 - 1),
        )
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
            raise InputError(
                f"device = {self.device!r} is not known; use 'auto', 'cpu', 'cuda' or 'cuda:0' …."
            )
        if self.device != "cpu" and not torch.cuda.is_available():
            raise InputError(
                f"device = {self.device!r}: this PyTorch sees no CUDA device; use 'cpu' or 'auto'."
            )
        return torch.device(self.device)
