"""Finding a subject by name: built in, from an entry point, or `path/to/file.py:Name`."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, entry_points, version
from pathlib import Path
from typing import TYPE_CHECKING

from harness.case.problem import nearest
from harness.errors import SubjectMissingError, UsageError

if TYPE_CHECKING:
    from harness.subjects.protocol import Subject

GROUP = "metal_assay.subjects"


@dataclass(frozen=True)
class BuiltIn:
    """A subject that comes with the harness: where its class is, the package it needs, and one line about it."""

    target: str
    package: str | None
    about: str


BUILT_IN = {
    "reference": BuiltIn("harness.subjects.reference:Reference", None, "this project's own implementation"),
    "mlx": BuiltIn(
        "harness.subjects.mlx_ops:MlxOperations",
        "mlx",
        "MLX's own quantization in all modes, its products, attention and rope",
    ),
    "mlx-lm": BuiltIn(
        "harness.subjects.mlx_lm:MlxLm",
        "mlx-lm",
        "caches of mlx-lm, batches included, its recurrent cache and its attention",
    ),
    "mlx-optiq": BuiltIn(
        "harness.subjects.mlx_optiq:MlxOptiq", "mlx-optiq", "quantized ring and quantized batch of mlx-optiq"
    ),
}


def subject_names() -> list[str]:
    """Return the names that `--subject` knows without a file."""
    return [*BUILT_IN, *(point.name for point in entry_points(group=GROUP))]


def check_name(name: str) -> None:
    """Refuse a name that can't be a subject, without importing anything of it; raises UsageError.

    `SUBJECT@VARIANT` is a subject that multiplies trellis-coded matrices by one of its variants.
    """
    name = name.partition("@")[0]
    if name in BUILT_IN:
        package = BUILT_IN[name].package
        if package is not None:
            try:
                version(package)
            except PackageNotFoundError:
                message = f"subject '{name}' needs the package {package}: pip install {package}"
                raise SubjectMissingError(message) from None
        return
    if ":" in name:
        path, _, attribute = name.rpartition(":")
        if not path.endswith(".py"):
            raise UsageError(f"subject '{name}': write path/to/file.py:ClassName")
        if not Path(path).is_file():
            raise SubjectMissingError(f"subject '{name}': there is no file {path}")
        if not attribute.isidentifier():
            raise UsageError(f"subject '{name}': '{attribute}' is no class name; write path/to/file.py:ClassName")
        return
    if name not in subject_names():
        raise UsageError(f"no subject '{name}'{nearest(name, subject_names())} (or path/to/file.py:ClassName)")


def load_subject(name: str) -> Subject:
    """Import and make the subject called `name`; raises UsageError or SubjectMissingError, or what its code raises."""
    check_name(name)
    name, _, variant = name.partition("@")
    if name in BUILT_IN:
        module, _, attribute = BUILT_IN[name].target.partition(":")
        found = getattr(import_module(module), attribute)
    elif ":" in name:
        path, _, attribute = name.rpartition(":")
        found = _from_file(Path(path), attribute, name)
    else:
        found = next(point for point in entry_points(group=GROUP) if point.name == name).load()
    subject: Subject = found()
    subject.chosen_variant = variant or None
    from harness.subjects.protocol import Subject as Base

    if not isinstance(subject, Base):
        raise SubjectMissingError(
            f"subject '{name}': {type(subject).__name__} must be a subclass of harness.subjects.protocol.Subject"
        )
    if not subject.kinds():
        raise SubjectMissingError(f"subject '{name}' offers no kind: override ring(), affine() or trellis()")
    return subject


def _from_file(path: Path, attribute: str, name: str) -> type[Subject]:
    # Named by content and place, so that two files called `mine.py` don't meet in sys.modules.
    module_name = f"assay_subject_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:12]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise SubjectMissingError(f"subject '{name}': {path} can't be imported")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    # A subject's own helpers lie beside it.
    sys.path.insert(0, str(path.resolve().parent))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(path.resolve().parent))
    found: type[Subject] | None = getattr(module, attribute, None)
    if found is None:
        classes = [key for key, value in vars(module).items() if isinstance(value, type) and not key.startswith("_")]
        raise SubjectMissingError(f"subject '{name}': {path} has no '{attribute}'{nearest(attribute, classes)}")
    return found
