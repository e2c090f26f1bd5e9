"""What an implementation under test has to offer, per kind, and the arrays that travel.

A subject gets NumPy arrays (bfloat16 as `ml_dtypes.bfloat16`) and returns NumPy arrays. It never sees an expected
answer. Every method has a default that says "unsupported", so that a subject offers just what it has.
"""

from harness.subjects.protocol.affine import Affine
from harness.subjects.protocol.arrays import AffineArrays, AffineStorage, Arrays, PlainArrays, RowsApart
from harness.subjects.protocol.attention import Attention, AttentionInput
from harness.subjects.protocol.kernel import KernelAnswer, KernelLaunch, Kernels, KernelText, KernelView
from harness.subjects.protocol.outcomes import Refused, Unsupported
from harness.subjects.protocol.recurrent import (
    Recurrent,
    RecurrentAnswer,
    RecurrentBlock,
    RecurrentSpec,
    RecurrentWeights,
)
from harness.subjects.protocol.ring import Answer, Block, Donor, HandedOut, Layout, Pinned, Ring, RingSpec
from harness.subjects.protocol.subject import Subject
from harness.subjects.protocol.timed import TimedCall
from harness.subjects.protocol.trellis import Trellis, TrellisOffer, TrellisSpec

__all__ = [
    "Affine",
    "AffineArrays",
    "AffineStorage",
    "Answer",
    "Arrays",
    "Attention",
    "AttentionInput",
    "Block",
    "Donor",
    "HandedOut",
    "KernelAnswer",
    "KernelLaunch",
    "KernelText",
    "KernelView",
    "Kernels",
    "Layout",
    "Pinned",
    "PlainArrays",
    "Recurrent",
    "RecurrentAnswer",
    "RecurrentBlock",
    "RecurrentSpec",
    "RecurrentWeights",
    "Refused",
    "Ring",
    "RingSpec",
    "RowsApart",
    "Subject",
    "TimedCall",
    "Trellis",
    "TrellisOffer",
    "TrellisSpec",
    "Unsupported",
]
