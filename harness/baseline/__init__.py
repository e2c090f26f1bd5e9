"""The naive answers: NumPy float64 and plain lists, nothing else."""
