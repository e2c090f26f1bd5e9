"""A recording made of what another program's quantized ring held: an example to copy for other formats.

    python -m harness.recording.foreign RING.safetensors DIR

RING.safetensors holds, for one request and step by step from 0, the block `STEP.keys` and `STEP.values`
[1, kv_heads, tokens, head_dim], and after the steps that were looked at, `STEP.keys.packed`, `STEP.keys.scales`,
`STEP.keys.biases` and the same of values: what the ring held then, oldest token first, at most `window` tokens. Its
metadata say `window` (`none`: a full cache), `bits`, `group_size`, and `by`: who made it. `assay run --against DIR`
feeds the blocks to a subject here, and compares what it lends after the same steps.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import AssayError, RecordingError
from harness.recording.folder import INDEX, VERSION
from harness.recording.observe import metadata
from harness.recording.replay import ANYTHING
from harness.recording.tensors import pack, unpack

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

PLANES = ("packed", "scales", "biases")


def calls_of(tensors: Mapping[str, NDArray[Any]], about: Mapping[str, str], file: object) -> list[dict[str, Any]]:
    """Return the calls that do on a ring of the protocol what the other program did; raises RecordingError."""
    try:
        bits, group_size = int(about["bits"]), int(about["group_size"])
        window = None if about["window"] == "none" else int(about["window"])
        first, values = tensors["0.keys"], tensors["0.values"]
    except (KeyError, ValueError) as error:
        wanted = "its metadata must say window, bits and group_size, and its tensors begin with 0.keys and 0.values"
        raise RecordingError(f"{file}: {error}: {wanted}") from None
    heads, head_dim = first.shape[1], first.shape[3]
    spec = {
        "$": "RingSpec", "window": window, "rows": 1, "kv_heads": heads, "query_heads": heads, "head_dim": head_dim,
        "value_dim": values.shape[3], "dtype": first.dtype.name, "sinks": 0, "chunked": False, "layout": "ring",
        "crossing": [], "storage": {"$": "AffineStorage", "bits": bits, "group_size": group_size},
    }  # fmt: skip
    calls = [_call(0, "ring", "opening the cache", {"spec": spec}, _object(1))]
    step, donors = 0, 2
    while f"{step}.keys" in tensors:
        block: dict[str, Any] = {side: _array(f"{step}.{side}") for side in ("keys", "values")}
        calls.append(_call(1, "append", f"step {step}", {**block, "queries": None}, ANYTHING))
        if f"{step}.keys.packed" in tensors:
            shown = {side: _planes(f"{step}.{side}", bits, group_size) for side in ("keys", "values")}
            answer = {"$": "Answer", **shown, "mask": ANYTHING, "output": ANYTHING}
            calls.append(_call(1, "donor", f"after step {step}", {"decoded": False}, _object(donors)))
            calls.append(_call(donors, "look", f"after step {step}", {"window": None, "queries": None}, answer))
            donors += 1
        step += 1
    return calls


def _call(on: int, name: str, during: str, given: dict[str, Any], result: Any) -> dict[str, Any]:
    return {"on": on, "call": name, "during": during, "given": given, "result": result}


def _object(number: int) -> dict[str, Any]:
    return {"$": "object", "number": number}


def _array(tensor: str) -> dict[str, Any]:
    return {"$": "array", "tensor": tensor}


def _planes(name: str, bits: int, group_size: int) -> dict[str, Any]:
    planes = {plane: _array(f"{name}.{plane}") for plane in PLANES}
    return {"$": "AffineArrays", **planes, "group_size": group_size, "bits": bits}


def import_ring(source: Path, folder: Path) -> None:
    """Write a recording of one instance; raises RecordingError when the source lacks something or `folder` exists."""
    data = source.read_bytes()
    tensors, about = unpack(data, source)
    calls = calls_of(tensors, about, source)
    name, digest = f"foreign/{source.stem}", hashlib.sha256(data).hexdigest()[:16]
    observation = pack(tensors, metadata(name, digest, calls))
    if folder.exists():
        raise RecordingError(f"{folder}: is there already; give a new folder")
    folder.mkdir(parents=True)
    (folder / "ring.safetensors").write_bytes(observation)
    by = about.get("by", "another program")
    line = {
        "id": name, "kind": "ring", "case": name, "foreign": True, "digest": digest, "outcome": "passed",
        "title": f"A quantized ring holds what that of {by} held", "file": "ring.safetensors",
        "bytes": len(observation), "sha256": hashlib.sha256(observation).hexdigest(),
    }  # fmt: skip
    header = {"assay_recording": VERSION, "subject": "reference", "versions": {}, "device": by, "instances": 1}
    lines = [header, line, {"finished": about.get("date", "")}]
    (folder / INDEX).write_text("".join(json.dumps(item) + "\n" for item in lines), encoding="utf-8")


if __name__ == "__main__":
    try:
        import_ring(Path(sys.argv[1]), Path(sys.argv[2]))
    except (AssayError, OSError, IndexError) as problem:
        sys.exit(f"error: {problem}\nusage: python -m harness.recording.foreign RING.safetensors DIR")
