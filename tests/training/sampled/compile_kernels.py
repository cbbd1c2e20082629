"""Compile every kernel of the GPU engine for NVIDIA GPUs (sm_90, sm_80), without one: a script of test_gpu.

Launches are caught: instead of running, a kernel is compiled with the very arguments it was launched with.
"""

import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime.jit import JITFunction

from loss_values import one_of
from truepair.losses import BPR, DPL, DPLHard
from truepair.models.encoders import MF, LightGCN
from truepair.sampling import BNS, DNS, Popularity, Uniform
from truepair.training import Job, Settings
from truepair.training.sampled.gpu import lightgcn
from truepair.training.sampled.gpu import runs as gpu_runs
from truepair.training.sampled.gpu.runs import GpuRuns
from truepair.training.sampled.plan import FUSED_LOSSES
from worlds import two_tastes

gpu_runs._LAZY_PARAMETERS = 0  # the kernels of large models too

OLDER, TARGET = 80, 90  # before Hopper no kernel starts early
POINTERS = {
    torch.float32: "*fp32",
    torch.float64: "*fp64",
    torch.int8: "*i8",
    torch.int32: "*i32",
    torch.int64: "*i64",
}
DATA = two_tastes(n_users=12, n_items=10, each=3)
done, done_plainly = set(), set()


def compile_instead(kernel, *args, grid, warmup, **given):
    """In place of JITFunction.run: every case as a new GPU launches it, every kernel as an older one does.

    An early launch (PDL) adds two instructions, whatever the other constants are. So each case is compiled
    with them for a new GPU, and each kernel once without them for an older one.
    """
    given |= dict(zip((p.name for p in kernel.params), args, strict=False))
    options, early = {"num_warps": given.get("num_warps", 4)}, "PDL" in given
    compile_with(kernel, given | {"PDL": early}, options | {"launch_pdl": early}, TARGET)
    if kernel.__name__ not in done_plainly:
        done_plainly.add(kernel.__name__)
        compile_with(kernel, given | {"PDL": False}, options, OLDER)


def compile_with(kernel, given, options, capability):
    """As Triton would: a size of 1 is a constant, pointers are aligned."""
    signature, constants, attributes = {}, {}, {}
    for place, parameter in enumerate(kernel.params):
        value, name = given[parameter.name], parameter.name
        if parameter.is_constexpr or (
            not parameter.do_not_specialize and isinstance(value, int) and value == 1
        ):
            signature[name], constants[place,] = "constexpr", value
        elif isinstance(value, torch.Tensor):
            signature[name], attributes[place,] = POINTERS[value.dtype], [["tt.divisibility", 16]]
        else:
            signature[name] = "i32" if isinstance(value, int) else "fp32"
    case = f"{kernel.__name__} {list(signature.values())} {list(constants.values())} {options} {capability}"
    if case not in done:
        done.add(case)
        source = ASTSource(fn=kernel, signature=signature, constexprs=constants, attrs=attributes)
        compiled = triton.compile(source, target=GPUTarget("cuda", capability, 32), options=options)
        assert f".target sm_{capability}" in compiled.asm["ptx"]
        assert compiled.asm["cubin"]
        print("compiled", case, flush=True)


def launch_all(encoder, loss, sampler, m=10, n=10, batch=7, **changes):
    """The kernels of an epoch, and of the matrices after it."""
    settings = Settings(batch_size=batch, n_extra=m, n_unlabelled=n, device="cpu", **changes)
    runs = GpuRuns([Job(encoder, loss, sampler, DATA, settings)])
    runs.enqueue()
    runs.matrices(0)


if __name__ == "__main__":
    JITFunction.run = compile_instead
    tau = {"tau": 0.1}
    for loss in (*(one_of(kind) for kind in FUSED_LOSSES), DPLHard(clamp="relative", **tau)):
        launch_all(MF(dim=8), loss, Uniform(), m=3, n=4)
    launch_all(MF(dim=64), DPL(**tau), Uniform(), m=1, n=1, batch=2)  # rows that wait
    launch_all(MF(dim=7, scoring="cosine"), DPL(**tau), Popularity(), m=0, n=1, l2_users=0.1)
    lightgcn._LONG = 3  # so that some rows have many neighbours, and some few
    launch_all(LightGCN(dim=64, hops=2), DPL(**tau), DNS(pool=9), m=2, n=3, l2_users=0.1)
    launch_all(MF(dim=200), BPR(), BNS(pool=9, in_batch=True), n=1)
    lightgcn._LONG = 100  # so that all have few
    launch_all(LightGCN(dim=5, scoring="cosine"), DPL(**tau), BNS(pool=9, in_batch=True), m=2, n=3)
