"""Engine "gpu": the reference in Triton kernels."""
