"""`truepair plan`: what training on several GPUs costs, and how many to take, before it begins."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from truepair.cli.console import Console, aligned
from truepair.cli.options import argument, option, refuse
from truepair.errors import InputError, check_choice
from truepair.storage.types import Json

if TYPE_CHECKING:
    from truepair.distributed.plan import Estimate, Plan


@dataclass(frozen=True, kw_only=True)
class PlanOptions:
    """Argument and options of `plan`."""

    source: str | None = argument("A folder of `truepair prepare`; only its manifest is read.", "SOURCE")
    gpus: int = option("The largest number of GPUs to consider.", default=8, min=1, max=65536)
    gpu: str = option("The kind of GPU: {truepair.distributed.devices.DEVICES}.", default="h200")
    link: str | None = option(
        "What a GPU can send to the others, such as 50GB/s or 400Gbit/s. [default: that of the GPU up to "
        "8, 50GB/s for more]",
        metavar="SPEED",
    )
    users: int | None = option("The number of users, without SOURCE.", min=1)
    items: int | None = option("The number of items, without SOURCE.", min=1)
    pairs: int | None = option("The number of interactions, without SOURCE.", min=1)
    dim: int = option("The length of the vectors.", default=64, min=1)
    columns: int | None = option(
        "Columns sampled for each block. [default: all up to 131,072 items, else 16,384]", min=1
    )
    batch: int = option("The users of a block.", default=2048, min=1)
    optimizer_state: str = option(
        "Where the users' part of Adam is: device, half (there in 16 bits), host.", default="device"
    )


def plan(args: PlanOptions, console: Console) -> None:
    """Plan training on GPUs: its time and memory, and how many to use.

    The table has the time of an epoch and the memory of a device by the number of GPUs. The times are those
    of a cost model with a softmax loss and Adam; docs/scale.md compares it with what was measured. Nothing is
    trained, and no GPU is needed.

    Example:
      truepair plan clicks.prepared --gpus 8 --gpu h100
      truepair plan --users 10000000 --items 1000000 --pairs 1000000000 --gpus 64 --link 50GB/s
    """
    from truepair.distributed.cost import PLACES, TrainingSize, columns_of
    from truepair.distributed.devices import DEVICES, link_speed
    from truepair.distributed.plan import plan as planned

    check_choice("optimizer_state", args.optimizer_state, PLACES)
    device = DEVICES[check_choice("gpu", args.gpu, DEVICES)]
    shape = _shape(args.source, {"--users": args.users, "--items": args.items, "--pairs": args.pairs})
    n_columns = columns_of(shape[1], args.columns)
    size = TrainingSize(*shape, args.dim, args.batch, n_columns, "adam", args.optimizer_state)
    speed = None if args.link is None else link_speed(args.link)
    found = planned(size, device, args.gpus, speed)
    command = None if found.best is None else _command(found, args.source, args.columns)
    console.give(_text(found, command), _facts(found, command))


def _shape(source: str | None, given: dict[str, int | None]) -> tuple[int, int, int]:
    """Users, items and interactions, of the folder or as they are given."""
    if source is not None:
        from truepair.data.prepared.opening import manifest_of

        refuse(given, f"with SOURCE {source}", "give one or the other")
        manifest = manifest_of(source)
        part = manifest.parts.get("train") or manifest.parts["all"]
        return manifest.users, manifest.items, part.pairs
    users, items, pairs = given.values()
    if users is None or items is None or pairs is None:
        missing = ", ".join(name for name, value in given.items() if value is None)
        raise InputError(f"there is no {missing}; give a prepared folder, or --users, --items and --pairs.")
    if pairs > users * items:
        raise InputError(f"pairs = {pairs:,} are more than {users:,} users x {items:,} items can have.")
    return users, items, pairs


def _command(found: Plan, source: str | None, columns: int | None) -> str:
    """How to train as planned."""
    from truepair.distributed.devices import ON_MACHINE

    size, best = found.size, found.best
    assert best is not None
    args = ["fit", source or "FOLDER", "-o", "model.truepair", "--dim", str(size.dim)]
    args += ["--batch-size", str(size.batch_size)]
    args += [] if columns is None else ["--set", f"sampler.columns={columns}"]
    args += [] if size.state == "device" else ["--set", f"optimizer_state={size.state}"]
    if best.ranks == 1:
        return shlex.join(["truepair", *args])
    machines = -(-best.ranks // ON_MACHINE)
    start = ["--nproc-per-node", str(-(-best.ranks // machines))]
    if machines > 1:
        start = ["--nnodes", str(machines), *start, "--rdzv-backend", "c10d", "--rdzv-endpoint", "HOST:29500"]
    return shlex.join(["torchrun", *start, "-m", "truepair", *args])


def _text(found: Plan, command: str | None) -> str:
    from truepair.distributed.devices import FITTING
    from truepair.distributed.plan import gathered_bytes

    size, device, best = found.size, found.device, found.best
    columns = f"{size.n_columns:,} sampled columns" if size.is_drawn else "all items as columns"
    lines = [
        f"{size.n_users:,} users x {size.n_items:,} items, {size.n_pairs:,} interactions; d = {size.dim}, "
        f"blocks of {size.batch_size:,} users, {columns}, on {device.name}",
        aligned([table_row(each, each is best) for each in found.estimates]),
    ]
    if best is None:
        least, remedies = min(each.device_bytes for each in found.estimates), found.remedies()
        what = f"Would fit: {'; '.join(remedies)}." if remedies else "Lower the columns, dim and batch."
        lines.append(
            f"It does not fit: a device needs {least / 1e9:,.1f} GB or more and has "
            f"{device.memory / 1e9:,.0f} GB, of which {FITTING:.0%} are planned. {what}"
        )
        return "\n".join(lines)
    needed = gathered_bytes(size, best.ranks) / 1e9
    lines.append(
        f"Recommended: {best.ranks} {device.name}, {_seconds(best.seconds)} an epoch. At the end a machine "
        f"needs {needed:,.1f} GB of main memory for the matrices."
    )
    return "\n".join([*lines, f"  {command}"])


def table_row(each: Estimate, is_best: bool) -> Json:
    """A line of the table."""
    costs = {name: _seconds(getattr(each, name)) for name in ("products", "memory", "wire", "host")}
    fits = "no" if not each.fits else "yes, recommended" if is_best else "yes"
    memory = f"{each.device_bytes / 1e9:,.1f}"
    return {
        "GPUs": each.ranks,
        "an epoch": _seconds(each.seconds),
        **costs,
        "GB a device": memory,
        "fits": fits,
    }


def _seconds(value: float) -> str:
    return f"{value:,.0f} s" if value >= 100 else f"{value:.1f} s" if value >= 1 else f"{1e3 * value:.1f} ms"


def _facts(found: Plan, command: str | None) -> Json:
    size = found.size
    names = ("users", "items", "pairs", "dim", "batch", "columns")
    return {
        **dict(zip(names, size[: len(names)], strict=True)),
        "optimizer_state": size.state,
        "gpu": found.device.name,
        "estimates": [{**each._asdict(), "seconds": each.seconds} for each in found.estimates],
        "recommended": None if found.best is None else found.best.ranks,
        "command": command,
        "would_fit": found.remedies(),
    }
