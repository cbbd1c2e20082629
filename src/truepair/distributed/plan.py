"""Plans: the time of an epoch and the memory of a device by the number of ranks, and which number to take."""

from __future__ import annotations

from typing import NamedTuple

from truepair.distributed.cost import MANY_PAIRS, PLACES, TrainingSize
from truepair.distributed.devices import FITTING, NETWORK, OF_LINK, ON_MACHINE, Device
from truepair.errors import InputError

_AS_FAST = 1.1  # times the least time: not worth more ranks
_FAR = 3  # times the latency, between machines


class Estimate(NamedTuple):
    """Of one number of ranks: seconds of an epoch by what they are spent on, and bytes."""

    ranks: int
    products: float
    memory: float
    wire: float
    host: float  # starts of kernels, and pairs and state that come from main memory
    device_bytes: int
    fits: bool

    @property
    def seconds(self) -> float:
        """Of an epoch: nothing overlaps."""
        return self.products + self.memory + self.wire + self.host


def estimate(size: TrainingSize, ranks: int, device: Device, link: float | None = None) -> Estimate:
    """The cost of an epoch on so many ranks; `link` is what a rank sends in a second, in bytes."""
    steps = size.steps
    alone = ranks == 1 and size.leaves_rows and device.is_gpu
    recorded = ranks == 1 and device.is_gpu and not alone and not size.is_drawn  # steps are replayed
    start = device.recorded_step if recorded else device.launched_step
    pairs = size.n_pairs / ranks * device.pair
    needed = size.rank_bytes(ranks) + (size.recorded_bytes() if recorded else 0)
    memory, host, streaming = size.step_memory(ranks), 0.0, 0.0
    if alone:
        streamed = size.n_pairs >= MANY_PAIRS
        needed = size.alone_bytes(True, streamed)
        memory, host = size.alone_memory(), size.alone_host()
        streaming = size.n_pairs * device.streamed_pair if streamed else 0.0
    far = ranks > ON_MACHINE
    link = link or (NETWORK if far else device.peers)
    wire = 0.0
    if ranks > 1:
        waiting = device.latency * (_FAR if far else 1) * size.collectives
        wire = size.epoch_wire(ranks) / (OF_LINK * link) + steps * waiting
    return Estimate(
        ranks,
        steps * size.step_flops(ranks) / (device.flops * device.of_products),
        steps * memory / (device.bandwidth * device.of_memory) + pairs,
        wire,
        steps * (start + host / (OF_LINK * device.host)) + streaming,
        needed,
        needed <= FITTING * device.memory,
    )


class Plan(NamedTuple):
    """The estimates by rising numbers of ranks, and the recommended one; None if none fits."""

    size: TrainingSize
    device: Device
    estimates: list[Estimate]
    best: Estimate | None

    def remedies(self) -> list[str]:
        """What would fit, if nothing does."""
        if self.best is not None:
            return []
        room, most = int(FITTING * self.device.memory), self.estimates[-1].ranks
        found = []
        if (ranks := self.size.ranks_for(room)) is not None:
            found.append(f"{ranks} GPUs")
        for state in PLACES[PLACES.index(self.size.state) + 1 :]:
            changed = estimate(self.size._replace(state=state), 1, self.device)
            if self.size.leaves_rows and self.device.is_gpu and changed.fits:
                found.append(
                    f"one GPU with optimizer_state = {state!r} ({changed.device_bytes / 1e9:,.1f} GB)"
                )
        halves = [self.size.dim >> k for k in range(1, 8) if self.size.dim >> k]
        fitting = [dim for dim in halves if self.size._replace(dim=dim).rank_bytes(most) <= room]
        found += [f"dim = {fitting[0]}"] if fitting else []
        smaller = self.size._replace(batch_size=max(self.size.batch_size // 8, 1))
        if smaller.rank_bytes(most) <= room:
            found.append(f"blocks of {smaller.batch_size:,} users")
        return found


def plan(size: TrainingSize, device: Device, gpus: int, link: float | None = None) -> Plan:
    """Estimates for 1, 2, 4, … and `gpus` ranks; recommended are the fewest that are about as fast as any."""
    most = min(size.n_users, size.n_items)
    if gpus > most:
        raise InputError(
            f"gpus = {gpus} is out of range: users and items are divided among ranks, and there are only "
            f"{most:,}; give a whole number from 1 to {most:,}."
        )
    numbers = sorted({1 << k for k in range(gpus.bit_length())} | {gpus})
    found = [estimate(size, ranks, device, link) for ranks in numbers]
    fitting = [each for each in found if each.fits]
    least = min((each.seconds for each in fitting), default=0.0)
    best = next((each for each in fitting if each.seconds <= _AS_FAST * least), None)
    return Plan(size, device, found, best)


def gathered_bytes(size: TrainingSize, ranks: int) -> int:
    """Main memory of a machine at the end of training: each of its ranks gathers both matrices."""
    return min(ranks, ON_MACHINE) * (size.n_users + size.n_items) * size.dim * 4
