"""The report of a timing comparison as a Markdown summary, as JSON and as JUnit XML."""

from __future__ import annotations

import json
import math
import re
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree as ET

from harness.regress import percent
from harness.report.timing import duration, figures, operation, ratio, reason, summary, undecided
from harness.verdict import Call, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from harness.report.timing import TimingReport
    from harness.verdict import Evidence, Verdict

_HEADERS = (
    "instance",
    "operation",
    "base",
    "new",
    "new / base [99 % interval]",
    "verdict",
    "quartiles of new",
    "by round",
)
_SIGNS = {Call.SLOWER: "🔴", Call.FASTER: "🟢", Call.SAME: "⚪", Call.AMBIGUOUS: "🟡"}


def markdown(report: TimingReport) -> str:
    """Return a summary that reads well on GitHub: what to act on first, what stayed the same folded away."""
    return "\n".join(_markdown(report)) + "\n"


def _markdown(report: TimingReport) -> Iterator[str]:
    yield f"## Timing: {_cell(report.new)} beside {_cell(report.base)}"
    yield ""
    yield f"{_headline(report)} {summary(report)}."
    yield ""
    ordered = report.ordered()
    loud = [verdict for verdict in ordered if verdict.call is not Call.SAME]
    same = [verdict for verdict in ordered if verdict.call is Call.SAME]
    if report.wrong:
        yield "**Wrong answers of the new side**"
        yield ""
        yield from (f"- `{instance}`: {_cell(why)}" for instance, why in report.wrong)
        yield ""
    if loud:
        yield from _table(loud)
        yield ""
        if wide := undecided(report):
            yield f"{Reason.WIDE_INTERVAL}: {wide}."
            yield ""
        yield from _folded("What these rest on", [f"- `{v.evidence.instance}` {_because(v)}" for v in loud])
    if same:
        yield from _folded(f"{len(same)} stayed the same", list(_table(same)))
    if report.left_out:
        yield from _folded(
            f"{len(report.left_out)} were not compared", [f"- `{name}`: {_cell(why)}" for name, why in report.left_out]
        )
    yield from (f"> {_cell(note)}\n" for note in report.notes)
    machine = ", ".join(f"{key} {value}" for key, value in report.machine.items())
    yield f"<sub>{_how(report)} Machine: {_cell(machine) or 'unknown'}.</sub>"


def _headline(report: TimingReport) -> str:
    return {
        0: "**No regression.**",
        1: "**Wrong answers.**",
        3: "**Slower, confirmed by a second session.**",
    }.get(report.exit_code, "**Could not be measured.**")


def _how(report: TimingReport) -> str:
    if report.interleaved:
        return "Rounds interleaved over fresh processes; SLOWER counts after a second session agreed."
    return "Two sessions at different times, set side by side by the canary: weak evidence."


def _because(verdict: Verdict) -> str:
    # The table has intervals.
    told = verdict.detail and verdict.reason is not Reason.WIDE_INTERVAL
    why = f"{verdict.reason}: {_cell(verdict.detail)}; " if told else ""
    return f"{operation(verdict.evidence)}: {why}{figures(verdict.evidence)}"


def _table(verdicts: Iterable[Verdict]) -> Iterator[str]:
    yield f"| {' | '.join(_HEADERS)} |"
    yield f"|{'---|' * len(_HEADERS)}"
    for verdict in verdicts:
        one = verdict.evidence
        base, new = (_whole(side.median_ns) if side else "-" for side in (one.base, one.new))
        quartiles = f"{_whole(one.new.q1_ns)} to {_whole(one.new.q3_ns)}" if one.new else "-"
        why = reason(verdict)
        call = f"{_SIGNS[verdict.call]} {verdict.call}" + (f" ({why})" if why else "")
        cells = [f"`{one.instance}`", operation(one), base, new, ratio(one), call, quartiles, one.trace]
        yield f"| {' | '.join(_cell(cell) for cell in cells)} |"


def _folded(title: str, body: list[str]) -> Iterator[str]:
    yield f"<details><summary>{title}</summary>"
    # GitHub reads Markdown inside HTML only after an empty line.
    yield ""
    yield from body
    yield ""
    yield "</details>"
    yield ""


def _whole(ns: float) -> str:
    """Write a time that no narrow column tears from its unit."""
    return duration(ns).replace(" ", "\N{NO-BREAK SPACE}")


def _cell(text: str) -> str:
    return re.sub(r"[ \t\r\n]+", " ", text.replace("|", "\\|")).strip()


def to_json(report: TimingReport) -> str:
    """Return everything as JSON; ratios, not logarithms."""
    return json.dumps(
        {
            "base": report.base,
            "new": report.new,
            "exit_code": report.exit_code,
            "interleaved": report.interleaved,
            "tested": report.tested,
            "machine": dict(report.machine),
            "verdicts": [_json(verdict) for verdict in report.ordered()],
            "wrong": [{"id": instance, "why": why} for instance, why in report.wrong],
            "left_out": [{"id": instance, "why": why} for instance, why in report.left_out],
            "notes": list(report.notes),
        },
        indent=1,
        ensure_ascii=False,
    )


def _json(verdict: Verdict) -> dict[str, Any]:
    one = verdict.evidence
    return {
        "id": one.instance,
        "operation": one.operation,
        "amortized": one.amortized,
        "candidate": one.candidate,
        "verdict": str(verdict.call),
        "reason": str(verdict.reason),
        "detail": verdict.detail,
        "confirmed": verdict.confirmed,
        "base_median_ns": one.base.median_ns if one.base else None,
        "new_median_ns": one.new.median_ns if one.new else None,
        "ratio": _finite(math.exp(one.interval.effect)),
        "interval": [_finite(math.exp(one.interval.low)), _finite(math.exp(one.interval.high))],
        "floor": math.expm1(one.floor),
        "p": one.p,
        "p_adjusted": verdict.p_adjusted,
        "control": math.exp(one.control.effect) if one.control else None,
        "rounds": one.rounds,
        "sets": one.sets,
        "looks": one.look,
    }


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def junit(report: TimingReport) -> str:
    """Return JUnit XML: a confirmed regression and a wrong answer fail, what could not be told is skipped."""
    failures = [verdict for verdict in report.verdicts if verdict.is_regression]
    wrong = dict(report.wrong)
    suite = ET.Element("testsuite", name="assay compare", failures=str(len(failures) + len(wrong)), errors="0")
    for verdict in report.ordered():
        one = verdict.evidence
        if one.instance not in wrong:
            _junit_case(suite, verdict, one, skip=verdict.call is Call.AMBIGUOUS)
    for instance, why in [*wrong.items()]:
        case = ET.SubElement(suite, "testcase", classname="conformance", name=_xml(instance))
        ET.SubElement(case, "failure", message=_xml(why))
    for instance, why in report.left_out:
        case = ET.SubElement(suite, "testcase", classname="timing", name=_xml(instance))
        ET.SubElement(case, "skipped", message=_xml(why))
    suite.set("tests", str(len(suite)))
    suite.set("skipped", str(sum(case.find("skipped") is not None for case in suite)))
    return ET.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _junit_case(suite: ET.Element, verdict: Verdict, one: Evidence, *, skip: bool) -> None:
    name = f"{one.instance}:{operation(one)}"
    seconds = f"{one.new.median_ns / 1e9:.9f}" if one.new else "0"
    case = ET.SubElement(suite, "testcase", classname="timing", name=_xml(name), time=seconds)
    words = f"{verdict.call} {ratio(one)}"
    if verdict.is_regression:
        failure = ET.SubElement(case, "failure", message=_xml(words))
        failure.text = _xml(figures(one))
    elif skip:
        ET.SubElement(case, "skipped", message=_xml(f"{words} {verdict.reason}: {verdict.detail}"))
    elif verdict.call is Call.SLOWER or verdict.reason is not Reason.CLEAR:
        ET.SubElement(case, "system-out").text = _xml(f"{words}, not confirmed; floor {percent(one.floor)}")


def _xml(text: str) -> str:
    # XML 1.0 has no way to write most control characters.
    return "".join(char if char >= " " or char in "\n\t" else "\ufffd" for char in text)
