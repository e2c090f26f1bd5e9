"""Reference implementation of rotating KV caches, attention over them, and quantized kernels for MLX."""
