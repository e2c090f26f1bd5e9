"""What machine a record was made on: enough to know whether two records may be compared."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


@cache
def fingerprint() -> dict[str, str | int]:
    """Return chip, GPU, memory, system, power mode, releases and MLX's environment switches; imports nothing heavy."""
    import psutil

    found: dict[str, str | int] = {
        "chip": _chip(),
        "cores": os.cpu_count() or 1,
        "memory_gib": round(psutil.virtual_memory().total / 2**30),
        "system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "python": platform.python_version(),
    }
    with suppress(PackageNotFoundError):
        found["mlx"] = version("mlx")
    found.update(_gpu())
    power = _power()
    if power:
        found["power"] = power
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


def _gpu() -> dict[str, str | int]:
    """Return the cores of a Mac's GPU, or the name of NVIDIA's, where there is one and it is told."""
    if platform.system() == "Darwin":
        asked = _said(["/usr/sbin/ioreg", "-rc", "AGXAccelerator", "-d", "1"])
        cores = [line.rpartition("=")[2].strip() for line in asked.splitlines() if '"gpu-core-count"' in line]
        return {"gpu_cores": int(cores[0])} if cores and cores[0].isdigit() else {}
    for path in sorted(Path("/proc/driver/nvidia/gpus").glob("*/information")):
        for line in path.read_text(encoding="utf-8").splitlines():
            if line.startswith("Model:"):
                return {"gpu": line.partition(":")[2].strip()}
    return {}


def _power() -> str:
    """Return the power mode of a Mac, or the governor of Linux; "" where neither is told."""
    if platform.system() == "Darwin":
        lines = [line.split() for line in _said(["/usr/bin/pmset", "-g"]).splitlines()]
        modes = {words[0]: words[1] for words in lines if len(words) == 2}
        known = [f"{name}={modes[name]}" for name in ("lowpowermode", "highpowermode", "powermode") if name in modes]
        return " ".join(known)
    try:
        return Path("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _said(command: list[str]) -> str:
    try:
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=10).stdout  # noqa: S603 - fixed commands
    except (OSError, subprocess.TimeoutExpired):
        return ""
