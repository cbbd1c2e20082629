"""The quality contest: full-catalogue training against what people use, with equal tuning."""
