"""`assay machine`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from harness.verbs.common import say

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.timing.machine import Machine


@click.command("machine", epilog="\b\nExamples:\n  assay machine\n  assay machine --refresh --noise")
@click.option("--refresh", is_flag=True, help="Measure again, and forget what was measured before.")
@click.option(
    "--noise", is_flag=True, help="Also time the same work beside itself: what this machine can't tell apart."
)
@click.option("--json", "as_json", is_flag=True, help="Write everything as JSON.")
def command(refresh: bool, noise: bool, as_json: bool) -> None:
    """Say what times depend on here, and what this machine was measured to do at most.

    Rates are the best of several tries, measured once and kept. Times of cases are shown as a share of the rate of a
    copy of their size; what is faster than any rate measured can't be true.
    """
    from harness.timing.machine import known_machine
    from harness.timing.noise import measure_noise

    machine = known_machine(refresh=refresh)
    floor = measure_noise() if noise else None
    if as_json:
        import json
        from dataclasses import asdict

        say(json.dumps({**asdict(machine), **({"noise": asdict(floor)} if floor else {})}, indent=2))
        return
    for line in _lines(machine):
        say(line)
    if floor is not None:
        say("")
        say(f"noise: the same work beside itself, {floor.rounds} rounds in {floor.processes} sets of processes,")
        median, most = 100 * floor.median, 100 * floor.most
        say(f"differs by {median:.1f} % a round in the median, in 19 of 20 rounds by {most:.1f} % at most")


def _lines(machine: Machine) -> Iterator[str]:
    from tabulate import tabulate

    yield tabulate([[key, value] for key, value in machine.identity.items()], tablefmt="plain", disable_numparse=True)
    yield f"MLX device  {machine.device}"
    yield f"clock       {machine.clock_ns} ns a reading; {machine.overhead_ns / 1e3:.1f} µs around an empty evaluation"
    yield ""
    yield "Metal text:"
    yield tabulate(list(machine.backends.items()), tablefmt="plain")
    yield ""
    rows = [
        [_size(size), f"{copied / 1e9:.1f}", f"{read / 1e9:.1f}"]
        for (size, copied), (_, read) in zip(machine.rates.copied, machine.rates.read, strict=True)
    ]
    yield tabulate(rows, headers=["array", "copied GB/s", "read GB/s"], tablefmt="simple", disable_numparse=True)
    yield ""
    products = ", ".join(f"{dtype} {rate / 1e9:.0f}" for dtype, rate in machine.rates.operations.items())
    yield f"matrix products, G operations/s: {products}"
    yield f"measured {machine.measured}"


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"
