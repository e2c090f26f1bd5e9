"""Prints, as JSON, every kernel that the installed mlx-lm makes: run as a program, because it changes MLX first.

Each is an object with the arguments of `mx.fast.metal_kernel`. Modules make most kernels when they are imported.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import pkgutil
import sys
from typing import Any

import mlx.core as mx


def _texts() -> list[dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}

    def record(**given: Any) -> None:
        found[given["name"]] = given

    core: Any = mx
    core.fast.metal_kernel = record
    core.metal.is_available = lambda: True
    core.default_device = lambda: mx.Device(mx.gpu, 0)
    import mlx_lm

    for module in pkgutil.walk_packages(mlx_lm.__path__, "mlx_lm."):
        spec = importlib.util.find_spec(module.name)
        if spec is None or spec.origin is None:
            continue
        with open(spec.origin, encoding="utf-8") as file:  # noqa: PTH123 - a path from the import system
            text = file.read()
        if "metal_kernel(" in text:
            importlib.import_module(module.name)
    from mlx_lm.tuner import losses

    for name in vars(losses):
        if name.startswith("_make_"):
            getattr(losses, name)()
    return list(found.values())


if __name__ == "__main__":
    json.dump(_texts(), sys.stdout)
