"""What machine a record was made on: enough to know whether two records may be compared."""

from __future__ import annotations

import os
import platform
import subprocess
from functools import cache
from pathlib import Path


@cache
def fingerprint() -> dict[str, str | int]:
    """Return chip, cores, memory, system, Python and MLX's environment switches; imports nothing heavy."""
    import psutil

    found: dict[str, str | int] = {
        "chip": _chip(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }
    # Such switches change results and times (MLX_ENABLE_TF32, MLX_MAX_OPS_PER_BUFFER, ...).
    switches = sorted(f"{key}={value}" for key, value in os.environ.items() if key.startswith("MLX_"))
    if switches:
        found["switches"] = " ".join(switches)
    return found


def _chip() -> str:
    if platform.system() == "Darwin":
        command = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        asked = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - a fixed command
        return asked.stdout.strip() or platform.processor()
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
