"""An implementation under test, and the kinds that it offers."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from harness.subjects.protocol.outcomes import Unsupported

if TYPE_CHECKING:
    from harness.subjects.protocol.affine import Affine
    from harness.subjects.protocol.attention import Attention
    from harness.subjects.protocol.kernel import Kernels
    from harness.subjects.protocol.recurrent import Recurrent, RecurrentSpec
    from harness.subjects.protocol.ring import Ring, RingSpec
    from harness.subjects.protocol.trellis import Trellis

# Kinds, and the method of a subject that offers each of them: what lends is a ring.
OFFERED_BY = {
    "affine": "affine",
    "attention": "attention",
    "donor": "ring",
    "kernel": "kernel",
    "recurrent": "recurrent",
    "ring": "ring",
    "trellis": "trellis",
}


class Subject:
    """An implementation under test. Subclass it, name it, and override the kinds that it has.

    `capabilities` answers `requires:` of case files (`sinks`, `rows`, ...). `package` is the distribution whose
    version is recorded. `chosen_variant`: which of several kernels it is, where `SUBJECT@VARIANT` was asked for.
    """

    name: ClassVar[str] = ""
    package: ClassVar[str | None] = None
    capabilities: ClassVar[frozenset[str]] = frozenset()
    chosen_variant: str | None = None

    def ring(self, spec: RingSpec) -> Ring:
        """Return an empty cache as `spec` asks for; raise Unsupported with the reason where there is none."""
        raise Unsupported("kind ring")

    def affine(self) -> Affine:
        """Return the subject's affine quantization."""
        raise Unsupported("kind affine")

    def attention(self) -> Attention:
        """Return the subject's attention."""
        raise Unsupported("kind attention")

    def kernel(self) -> Kernels:
        """Return what launches Metal kernel text."""
        raise Unsupported("kind kernel")

    def recurrent(self, spec: RecurrentSpec) -> Recurrent:
        """Return an empty recurrent cache as `spec` asks for."""
        raise Unsupported("kind recurrent")

    def trellis(self) -> Trellis:
        """Return the subject's trellis kernels."""
        raise Unsupported("kind trellis")

    def versions(self) -> dict[str, str]:
        """Versions that explain a result, for the record."""
        from importlib.metadata import PackageNotFoundError, version

        found = {}
        for package in filter(None, (self.package, "mlx")):
            try:
                found[package] = version(package)
            except PackageNotFoundError:
                continue
        return found

    @classmethod
    def kinds(cls) -> frozenset[str]:
        """Kinds that this subject overrides."""
        return frozenset(
            kind for kind, method in OFFERED_BY.items() if getattr(cls, method) is not getattr(Subject, method)
        )
