"""Engine "cpu": the reference, step for step, in compiled code."""
