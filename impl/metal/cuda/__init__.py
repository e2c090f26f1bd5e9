"""The `cuda` backend: the unchanged Metal text as PTX, launched by MLX's CUDA build."""

from impl.metal.cuda.backend import CudaBackend

__all__ = ["CudaBackend"]
