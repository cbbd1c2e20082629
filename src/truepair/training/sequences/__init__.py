"""Engine "sequences": each event of a history predicts the next one."""
