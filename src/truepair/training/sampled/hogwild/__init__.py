"""Engine "cpu-fast": one entry a step, threads without locks."""
