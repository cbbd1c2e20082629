"""Model: fitting, folding in, saving and loading behind implicit's interface."""

from __future__ import annotations

import inspect
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import torch

from truepair.adapters.implicit.lists import Factors, Matrix, pairs_of
from truepair.data.interactions import Interactions
from truepair.errors import StorageError, check_choice
from truepair.losses import Loss
from truepair.models.encoders import MF
from truepair.models.factor_matrices import dense
from truepair.randomness import stream_key
from truepair.recommender.model_file import Model, load_model, save_model
from truepair.spec.parameters import as_json
from truepair.sampling import Draws, Uniform
from truepair.training import EpochState, Job, Settings, fit, fold_in

DEVICES = {None: "auto", True: "cuda", False: "cpu"}  # by `use_gpu`
Callback = Callable[[int, float, int, int], Any]


class PairwiseModel(Factors):
    """A pairwise loss, trained by stochastic gradient descent as implicit trains BPR.

    A step takes many pairs and applies the sum of their gradients, so `learning_rate` and `regularization`
    have the same meaning as in implicit, where each pair is one step. Items have no bias: factors have
    `factors` columns, where implicit's BPR has one more. `num_threads` is ignored: PyTorch chooses.
    Unlabelled items are always verified. `dtype` is the type of the resulting factors.
    """

    _kind: ClassVar[str]

    def __init__(
        self,
        factors: int = 100,
        learning_rate: float = 0.01,
        regularization: float = 0.01,
        dtype: Any = np.float32,
        iterations: int = 100,
        use_gpu: bool | None = None,
        num_threads: int = 0,
        verify_negative_samples: bool = True,
        random_state: Any = None,
    ) -> None:
        self.factors, self.learning_rate, self.regularization = factors, learning_rate, regularization
        self.dtype, self.iterations, self.use_gpu = np.dtype(dtype), iterations, use_gpu
        self.num_threads, self.verify_negative_samples = num_threads, verify_negative_samples
        self.random_state = random_state

    def _loss(self) -> Loss:
        raise NotImplementedError

    def _numbers(self) -> tuple[int, int]:
        """The numbers of extra positives and unlabelled items (M, N) per pair."""
        return 0, 1

    # --- fitting ---------------------------------------------------------------------------------------

    def fit(self, user_items: Any, show_progress: bool = True, callback: Callback | None = None) -> None:
        """Train on the nonzero entries of a users x items CSR matrix; their values are ignored.

        `callback(epoch, seconds, correct, skipped)` is called after each epoch: `correct` is the number of
        pairs that score above a random unlabelled item, and `skipped` is always 0.
        """
        pairs = pairs_of(user_items)
        job = self._job(pairs)
        on_epoch = None if callback is None else _EpochCallback(callback, pairs, job.settings)
        result = fit(job, on_epoch, progress=show_progress)
        self._seen, self._fitted_loss = pairs, result.job.loss
        self.user_factors = result.users.numpy().astype(self.dtype)
        self.item_factors = result.items.numpy().astype(self.dtype)

    def _job(self, pairs: Interactions) -> Job:
        """The training of this model on these pairs."""
        settings = self._settings(min(pairs.n_users, pairs.n_items))
        return Job(MF(dim=self.factors), self._loss(), Uniform(), pairs, settings)

    def _settings(self, n_rows: int) -> Settings:
        """Settings that correspond to implicit's; `n_rows` is the smaller of the numbers of users and items.

        With this batch size a step updates each vector about once, as steps of single pairs would.
        """
        n_extra, n_unlabelled = self._numbers()
        batch = min(max(n_rows, 16), 1024)
        return Settings(
            epochs=self.iterations,
            batch_size=batch,
            n_extra=n_extra,
            n_unlabelled=n_unlabelled,
            optimizer="sgd",
            learning_rate=self.learning_rate * batch,
            l2_users=self.regularization,
            l2_items=self.regularization
            * 2
            / (1 + n_extra + n_unlabelled),  # per pair, for any number of items
            seed=seed_of(self.random_state),
            device=DEVICES[self.use_gpu],
        )

    def recalculate_user(self, userid: Any, user_items: Any) -> Matrix:
        """Vectors for the rows of `user_items`, trained by the model's loss with the items fixed."""
        self._check_fitted()
        self._check_width(user_items)
        history = pairs_of(user_items)
        items = torch.from_numpy(self.item_factors.astype(np.float32))
        vectors = torch.zeros(history.n_users, items.shape[1])
        learnable = (history.user_counts > 0) & (history.user_counts < history.n_items)
        if learnable.any():
            job, popularity = self._job(history), self._seen.item_counts
            parts = job.encoder, self._fitted_loss, job.sampler
            vectors = fold_in(items, *parts, history, job.settings, popularity)
        rows = vectors.numpy().astype(self.dtype)
        return rows[0] if np.isscalar(userid) else rows

    # --- saving ----------------------------------------------------------------------------------------

    def save(self, fileobj_or_path: Any) -> None:
        """Write the model to a path or an open binary file, in truepair's file format; no pickle.

        The path is used unchanged: no `.npz` is appended.
        """
        self._check_fitted()
        users, items = (
            torch.from_numpy(m.astype(np.float32)) for m in (self.user_factors, self.item_factors)
        )
        facts = {"adapter": self._kind, **self._facts()}
        write_model(fileobj_or_path, Model(users, items, self._seen, self._seen.item_counts, facts))

    def _facts(self) -> dict[str, Any]:
        params: dict[str, Any] = {name: as_json(getattr(self, name)) for name in _parameters(type(self))}
        params["dtype"] = self.dtype.name
        params["random_state"] = seed_of(self.random_state) if self.random_state is not None else None
        return {"parameters": params, "tau": as_json(getattr(self._fitted_loss, "tau", None))}

    @classmethod
    def load(cls, fileobj_or_path: Any) -> Self:
        """Load a saved model; this runs no code from the file."""
        stored = read_model(fileobj_or_path)
        try:
            check_choice("adapter", stored.facts["adapter"], [cls._kind])
            model = cls(**stored.facts["parameters"])
            model._fitted_loss = model._loss_of(stored.facts["tau"])
            model._job(stored.seen)  # for its checks
            users, items = dense("users", stored.users), dense("items", stored.items)
        except (KeyError, TypeError, ValueError) as error:
            raise StorageError(f"{fileobj_or_path} is not a saved {cls.__name__}: {error!r:.300}") from error
        model._seen = stored.seen
        model.user_factors = users.numpy().astype(model.dtype)
        model.item_factors = items.numpy().astype(model.dtype)
        return model

    def _loss_of(self, tau: Any) -> Loss:
        """The fitted loss, with this prior."""
        return self._loss()


def write_model(fileobj_or_path: Any, model: Model) -> None:
    """Save to a path or an open binary file."""
    if not hasattr(fileobj_or_path, "write"):
        save_model(fileobj_or_path, model)
        return
    with tempfile.TemporaryDirectory() as folder:
        save_model(Path(folder) / "model", model)
        fileobj_or_path.write((Path(folder) / "model").read_bytes())


def read_model(fileobj_or_path: Any) -> Model:
    """Load from a path or an open binary file."""
    if not hasattr(fileobj_or_path, "read"):
        return load_model(fileobj_or_path)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "model").write_bytes(fileobj_or_path.read())
        return load_model(Path(folder) / "model")


class _EpochCallback:
    """Calls the user's function after each epoch, with implicit's arguments."""

    def __init__(self, callback: Callback, pairs: Interactions, settings: Settings) -> None:
        self.callback, self.seed, self.began = callback, settings.seed, time.perf_counter()
        self.draws = Draws(pairs, Uniform())

    def __call__(self, state: EpochState, /) -> None:
        began, self.began = self.began, time.perf_counter()
        users, items = (matrix.cpu() for matrix in state.matrices())  # engines train on either device
        batch = self.draws.batch(self.draws.anchors, 0, 1, stream_key(self.seed, state.epoch, 1))
        gap = items[batch.pos] - items[batch.unlabelled[:, 0]]
        correct = int(((users[batch.users] * gap).sum(dim=1) > 0).sum())
        self.callback(state.epoch - 1, self.began - began, correct, 0)


def _parameters(kind: type[PairwiseModel]) -> list[str]:
    return list(inspect.signature(kind).parameters)


def seed_of(random_state: Any) -> int:
    """A seed from implicit's `random_state`: None, a number, or a NumPy generator."""
    if isinstance(random_state, np.random.RandomState):
        return int(random_state.randint(2**31))
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(np.random.default_rng(random_state).integers(2**31))
