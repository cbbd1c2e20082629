"""Engine "cpu": one data entry a step, threads without locks."""
