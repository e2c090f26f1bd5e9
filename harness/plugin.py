"""The pytest plugin: collects case files, one item an instance; `--benchmark` also times those with `time:`.

Instances run in worker processes, as under `assay run`: a subject that crashes fails its own items only.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from harness.case.expand import Instance
    from harness.outcome import Result
    from harness.pytest_gate import Gate
    from harness.pytest_kernels import Kernels
    from harness.session import Session

SAMPLE = 2


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of this plugin."""
    group = parser.getgroup("metal-assay", "metal-assay: conformance cases for KV caches and kernels")
    group.addoption(
        "--benchmark", action="store_true", dest="assay_benchmark", help="also time the cases that have `time:`"
    )
    group.addoption(
        "--benchmark-gate",
        choices=("conformance", "confirmed"),
        default="conformance",
        dest="assay_gate",
        help="what fails a timed case: wrong answers only, or also a time that two sessions call slower than this "
        "machine's stored baseline (`assay compare --save-baseline`) by more than the case's `limits: {slowdown: ...}`",
    )
    group.addoption(
        "--benchmark-baselines",
        default="reports/baselines",
        metavar="DIR",
        dest="assay_baselines",
        help="where the baselines are stored (default: reports/baselines)",
    )
    group.addoption(
        "--assay-subject",
        action="append",
        dest="assay_subjects",
        metavar="S",
        help="run cases on this subject: a name of `assay subjects`, or file.py:Class (repeatable; default: reference)",
    )
    group.addoption(
        "--assay-sample",
        dest="assay_sample",
        metavar="N",
        help=f"instances of each case, or `all` (default: {SAMPLE}, always the same ones)",
    )
    group.addoption(
        "--metal-text",
        action="store_true",
        dest="assay_metal_text",
        help="let mx.fast.metal_kernel of every package run on this machine, in tests and in the cases' workers",
    )
    group.addoption(
        "--metal-checks",
        action="store_true",
        dest="assay_metal_checks",
        help="watch every Metal kernel that a test launches (memory, races, barriers), and fail the test if it has a "
        "fault; means --metal-text as well",
    )
    group.addoption(
        "--allow-code",
        action="store_true",
        dest="assay_allow_code",
        help="let cases run Python functions of files beside them",
    )
    parser.addini("assay_subjects", "subjects that cases run on", type="args")
    parser.addini("assay_sample", f"instances of each case, or `all` (default: {SAMPLE})")


def pytest_configure(config: pytest.Config) -> None:
    """Check the options."""
    from harness.errors import AssayError

    try:
        _sample(config)
    except ValueError:
        raise pytest.UsageError("--assay-sample takes a number of 1 or more, or `all`") from None
    if config.getoption("assay_metal_text") or config.getoption("assay_metal_checks"):
        _switch_kernels_on(config)
    if config.getoption("assay_allow_code"):
        from harness.kinds.kernel.files import allow_code

        allow_code()
    if config.getoption("assay_gate") == "confirmed" and not config.getoption("assay_benchmark"):
        raise pytest.UsageError("--benchmark-gate=confirmed judges times: add --benchmark")
    if config.getoption("assay_subjects"):
        from harness.subjects.registry import check_name

        for name in _subjects(config):
            try:
                check_name(name)
            except AssayError as error:
                raise pytest.UsageError(str(error)) from None


def _switch_kernels_on(config: pytest.Config) -> None:
    from harness.checking import CheckSettings
    from harness.errors import AssayError
    from harness.pytest_kernels import Kernels
    from harness.worker import METAL_TEXT_VARIABLE, mlx_advice

    if config.getoption("assay_metal_checks") and config.getoption("assay_benchmark"):
        raise pytest.UsageError("--metal-checks makes kernels slow: leave out --benchmark, or time in a run of its own")
    os.environ[METAL_TEXT_VARIABLE] = "1"
    settings = CheckSettings() if config.getoption("assay_metal_checks") else None
    if settings is not None:
        settings.pass_on()
    try:
        config.stash[_KERNELS] = Kernels(config, settings)
    except ImportError as error:
        raise pytest.UsageError(mlx_advice(error)) from None
    except AssayError as error:
        raise pytest.UsageError(str(error)) from None
    config.pluginmanager.register(config.stash[_KERNELS], "metal-assay-kernels")


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int | None:
    """Keep `pytest -n auto --benchmark` in one process: timings side by side disturb each other."""
    return 0 if config.getoption("assay_benchmark") else None


def pytest_report_header(config: pytest.Config) -> str:
    """Say how many instances are a sample."""
    count = _sample(config)
    size = (
        "every instance"
        if count is None
        else f"a fixed sample of {count} instances a case (--assay-sample all for every one)"
    )
    return f"metal-assay: on {', '.join(_subjects(config))}, {size}"


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect a YAML file that has a top-level `assay: <number>`; any other is not ours and is left alone."""
    if file_path.suffix not in (".yaml", ".yml"):
        return None
    from harness.case.source import is_case_file

    return CaseFile.from_parent(parent, path=file_path) if is_case_file(file_path) else None


def pytest_unconfigure(config: pytest.Config) -> None:
    """End the workers."""
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.stop()
    kernels = config.stash.get(_KERNELS, None)
    if kernels is not None:
        kernels.switch_off()


def _subjects(config: pytest.Config) -> list[str]:
    given = config.getoption("assay_subjects") or config.getini("assay_subjects") or ["reference"]
    return list(dict.fromkeys(given))


def _sample(config: pytest.Config) -> int | None:
    text = str(config.getoption("assay_sample") or config.getini("assay_sample") or SAMPLE)
    if text == "all":
        return None
    count = int(text)
    if count < 1:
        raise ValueError
    return count


class CaseFile(pytest.File):
    """One case file."""

    def collect(self) -> Iterator[pytest.Item]:
        """Yield an item an instance and subject."""
        from harness.case.load import load_file
        from harness.errors import CaseFileError, UsageError
        from harness.kinds.kernel.files import refuse_code
        from harness.select import sample

        # An instance named on the command line (file.yaml::id) is found among all of them, not in the sample only.
        named = any("::" in str(argument) for argument in self.config.args)
        count = None if named else _sample(self.config)
        try:
            instances = load_file(self.path, wanted=None if count is None else lambda ids: sample(ids, count))
            refuse_code(instances)
        except (CaseFileError, UsageError) as error:
            raise self.CollectError(str(error)) from None
        subjects = _subjects(self.config)
        for instance in instances:
            # Ids may hold slashes (`tokens=window//2`), names of cases only those of their folders.
            short = instance.id.removeprefix(instance.case_name.rpartition("/")[0]).lstrip("/")
            for subject in subjects:
                name = short if len(subjects) == 1 else f"{short}@{subject}"
                yield CaseItem.from_parent(self, name=name, instance=instance, subject=subject)


class CaseItem(pytest.Item):
    """One instance on one subject."""

    def __init__(self, *, instance: Instance, subject: str, **kwargs: Any) -> None:
        """Remember what to run."""
        super().__init__(**kwargs)
        self.instance, self.subject = instance, subject
        self.timed = bool(self.config.getoption("assay_benchmark") and getattr(instance.case, "time", None))
        # By this name pytest-benchmark tells benchmarks from other items (`--benchmark-only`, `--benchmark-skip`).
        self.fixturenames = ["benchmark"] if self.timed else []

    def runtest(self) -> None:
        """Run the instance in the session's worker; skip what is unsupported, fail with the evidence."""
        from harness.outcome import Outcome

        result = _session(self.config).run(self.instance, self.subject, benchmark=self.timed)
        if result.checks is not None and _KERNELS in self.config.stash:
            self.config.stash[_KERNELS].totals.add(result.checks)
        if result.outcome is Outcome.UNSUPPORTED:
            pytest.skip(result.reason)
        if result.outcome is Outcome.KNOWN:
            pytest.xfail(result.reason)
        if result.outcome.is_bad:
            raise CaseFailure(self.instance, self.subject, result)
        if result.rounds:
            from harness.benchmark import hand_over

            hand_over(self, result.rounds, self.instance, self.subject)
        if self.timed and self.config.getoption("assay_gate") == "confirmed":
            self._gate()

    def _gate(self) -> None:
        from harness.pytest_gate import Gate, SlowerError

        if _GATE not in self.config.stash:
            self.config.stash[_GATE] = Gate(Path(str(self.config.getoption("assay_baselines"))))
        timed = [item for item in self.session.items if isinstance(item, CaseItem) and item.timed]
        instances = [item.instance for item in timed if item.subject == self.subject]
        lines = self.config.stash[_GATE].lines(self.subject, instances, self.instance.id)
        if lines.slower:
            raise SlowerError("\n".join(lines.slower))
        if lines.others:
            self.add_report_section("call", "timing", "\n".join(lines.others))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show evidence instead of a traceback of the plugin."""
        from harness.errors import AssayError
        from harness.pytest_gate import SlowerError

        if isinstance(excinfo.value, CaseFailure | SlowerError):
            return str(excinfo.value)
        if isinstance(excinfo.value, AssayError):
            return f"error: {excinfo.value}"
        return super().repr_failure(excinfo, style)

    def reportinfo(self) -> tuple[Path, int, str]:
        """Name the instance in reports."""
        return self.path, 0, self.instance.id


class CaseFailure(Exception):  # noqa: N818 - pytest's own word for it
    """An instance that failed, with its evidence."""

    def __init__(self, instance: Instance, subject: str, result: Result) -> None:
        """Write the evidence as `assay run` does."""
        from harness.report.terminal import evidence

        lines = [f"{instance.case.title}", *evidence(instance, result, subject)]
        super().__init__("\n".join(lines))


_SESSION: pytest.StashKey[Session] = pytest.StashKey()
_KERNELS: pytest.StashKey[Kernels] = pytest.StashKey()
_GATE: pytest.StashKey[Gate] = pytest.StashKey()


def _session(config: pytest.Config) -> Session:
    if _SESSION not in config.stash:
        from harness.session import Session

        config.stash[_SESSION] = Session()
    return config.stash[_SESSION]
