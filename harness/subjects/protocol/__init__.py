"""What an implementation under test has to offer, per kind, and the arrays that travel.

A subject gets NumPy arrays (bfloat16 as `ml_dtypes.bfloat16`) and returns NumPy arrays. It never sees an expected
answer. Every method has a default that says "unsupported", so that a subject offers just what it has.
"""

from harness.subjects.protocol.affine import Affine
from harness.subjects.protocol.arrays import AffineArrays, AffineStorage, Arrays, PlainArrays
from harness.subjects.protocol.attention import Attention
from harness.subjects.protocol.outcomes import Refused, Unsupported
from harness.subjects.protocol.recurrent import Recurrent, RecurrentSpec
from harness.subjects.protocol.ring import Answer, Block, HandedOut, Ring, RingSpec
from harness.subjects.protocol.subject import Subject
from harness.subjects.protocol.trellis import Trellis, TrellisSpec

__all__ = [
    "Affine",
    "AffineArrays",
    "AffineStorage",
    "Answer",
    "Arrays",
    "Attention",
    "Block",
    "HandedOut",
    "PlainArrays",
    "Recurrent",
    "RecurrentSpec",
    "Refused",
    "Ring",
    "RingSpec",
    "Subject",
    "Trellis",
    "TrellisSpec",
    "Unsupported",
]
