"""Subject `reference`: this project's own implementation, `impl`."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from harness.subjects.protocol import Subject

if TYPE_CHECKING:
    from harness.subjects.protocol import Affine, Attention, Kernels, Recurrent, RecurrentSpec, Ring, RingSpec, Trellis


class Reference(Subject):
    """Rings, affine planes and trellis codes of `impl`."""

    name: ClassVar[str] = "reference"
    package: ClassVar[str | None] = "metal-assay"
    capabilities: ClassVar[frozenset[str]] = frozenset({"crossing", "save-load"})

    def ring(self, spec: RingSpec) -> Ring:
        """Return a solo ring; a full cache is a ring whose window is never reached."""
        from harness.subjects.reference.ring import open_ring

        return open_ring(spec)

    def affine(self) -> Affine:
        """Return affine quantization."""
        from harness.subjects.reference.affine import ReferenceAffine

        return ReferenceAffine()

    def attention(self) -> Attention:
        """Return attention over plain arrays and affine planes."""
        from harness.subjects.reference.attention import ReferenceAttention

        return ReferenceAttention()

    def kernel(self) -> Kernels:
        """Return what launches Metal kernel text on this machine."""
        from harness.subjects.reference.kernel import ReferenceKernels

        return ReferenceKernels()

    def recurrent(self, spec: RecurrentSpec) -> Recurrent:
        """Return an empty recurrent cache with its layer."""
        from harness.subjects.reference.recurrent import open_recurrent

        return open_recurrent(spec)

    def trellis(self) -> Trellis:
        """Return trellis codes by plain MLX operations."""
        from harness.subjects.reference.trellis import ReferenceTrellis

        return ReferenceTrellis()
