"""Metal kernels in anybody's tests: `--metal-text` runs them in the process of the tests, `--metal-checks` checks them.

A test that launched a kernel with a fault fails with the fault as its message. Nothing else about the tests changes.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import click
import pytest

from harness.report.kernel import HELP, at_its_place

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from harness.checking import CheckSettings
    from harness.outcome import KernelChecks, KernelFault
    from harness.subjects.reference.kernel_checks import Collector

SECTION = "Metal kernels"
_OUTPUT = "metal_assay_kernels"


@dataclass
class Totals:
    """What was checked in all tests, of all processes."""

    launches: int = 0
    kernels: set[str] = field(default_factory=set)
    skipped: set[str] = field(default_factory=set)
    # Kernel, fault and places, with the number of tests in which they were seen.
    findings: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def add(self, checks: KernelChecks) -> None:
        """Count what one test, or what came before all tests, launched."""
        self.launches += checks.launches
        self.kernels.update(checks.kernels)
        self.skipped.update(checks.skipped)
        self.findings.update((f.kernel, f.fault, ", ".join(map(str, f.places))) for f in checks.faults)

    def packed(self) -> str:
        """Return a text that crosses between the processes of pytest-xdist."""
        named = {"kernels": sorted(self.kernels), "skipped": sorted(self.skipped)}
        return json.dumps({**named, "launches": self.launches, "findings": list(self.findings.items())})

    def unpack(self, text: str) -> None:
        """Add what another process counted."""
        value = json.loads(text)
        self.launches += value["launches"]
        self.kernels.update(value["kernels"])
        self.skipped.update(value["skipped"])
        for (kernel, fault, places), count in value["findings"]:
            self.findings[kernel, fault, places] += count


class Kernels:
    """Metal text in this process, and its checks where there are `settings`."""

    def __init__(self, config: pytest.Config, settings: CheckSettings | None) -> None:
        """Switch on at once: kernels are made while test modules are imported."""
        self._config = config
        self._stack = ExitStack()
        self._collector: Collector | None = None
        self._pending: list[KernelFault] = []
        self.totals = Totals()
        self.checking = settings is not None
        if hasattr(config, "workerinput") or config.getoption("dist", "no") == "no":
            self._switch_on(settings)

    def _switch_on(self, settings: CheckSettings | None) -> None:
        # The controller of pytest-xdist runs no test.
        if settings is None:
            from harness.subjects.reference.metal_text import metal_text_here

            self._stack.enter_context(metal_text_here()[0])
        else:
            from harness.subjects.reference.kernel_checks import checked_kernels

            self._collector = self._stack.enter_context(checked_kernels(settings, every_package=True))

    def switch_off(self) -> None:
        """Let MLX be itself again."""
        self._stack.close()

    def _drain(self) -> tuple[KernelFault, ...]:
        if self._collector is None:
            return ()
        checks = self._collector.drain()
        self.totals.add(checks)
        return checks.faults

    def pytest_collection_finish(self) -> None:
        """Tell what was launched while modules were imported from what the first test launches."""
        self._drain()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Fail a test that passed and whose kernels have faults; say it of one that failed anyhow."""
        del item
        report = yield
        self._pending += self._drain()
        # What a fixture launches belongs to the test, which is to run all the same.
        if self._pending and not (report.when == "setup" and report.passed):
            _attach(report, message(self._pending))
            self._pending = []
        return report

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Hand over what was counted; a fault outside of all tests must not end as success."""
        self._drain()
        if hasattr(self._config, "workeroutput"):
            self._config.workeroutput[_OUTPUT] = self.totals.packed()
        elif self.totals.findings and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """Add what a process of pytest-xdist counted; one that crashed says nothing."""
        text = getattr(node, "workeroutput", {}).get(_OUTPUT)
        if text is not None:
            self.totals.unpack(text)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say how many kernels were checked, and list each fault once."""
        if not self.checking:
            return
        totals = self.totals
        terminalreporter.section(SECTION)
        for (kernel, fault, places), count in sorted(totals.findings.items()):
            where = f", {places}" if places else ""
            terminalreporter.line(f"{kernel}{where}: {fault} (in {count} test{'s' * (count != 1)})")
        for why in sorted(totals.skipped):
            terminalreporter.line(f"not checked: {why}")
        counts = [(len(totals.kernels), "kernel"), (totals.launches, "launch"), (len(totals.findings), "finding")]
        terminalreporter.line("checked: " + ", ".join(_counted(count, word) for count, word in counts))


def message(faults: Iterable[KernelFault]) -> str:
    """Return the faults as the message of a failed test."""
    lines = []
    for fault in faults:
        lines += [click.unstyle(line) for line in at_its_place(fault, named=True)]
        lines += [f"  help: {HELP[fault.fault]}"] if fault.fault in HELP else []
        lines.append("")
    return "\n".join(lines).rstrip()


def _counted(count: int, word: str) -> str:
    return f"{count} {word}" + ("" if count == 1 else "es" if word.endswith("ch") else "s")


def _attach(report: pytest.TestReport, text: str) -> None:
    if report.passed and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = text
    else:
        report.sections.append((SECTION, text))
