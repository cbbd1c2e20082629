"""Full-catalogue training: whole rows of scores, on the CPU and on CUDA."""
