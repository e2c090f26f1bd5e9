"""What a case of kind `recurrent` may say: the layer and its cache, the steps that happen to it, what is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field

from harness.case.model import CaseModel, Count, Dtype, Positive, Strict
from harness.kinds.recurrent.steps import AnyStep
from harness.subjects.protocol import RecurrentSpec

if TYPE_CHECKING:
    from harness.subjects.protocol import RecurrentWeights

Check = Literal["mask", "lengths", "counts", "conv-state", "state", "output", "positions", "untouched"]


class RecurrentGiven(Strict):
    """The layer and the cache that the case asks for."""

    layer: Literal["gated-delta", "ssm"] = "gated-delta"
    rows: Positive = Field(default=1, description="requests in the batch")
    kernel: Positive = Field(default=4, description="tokens that a convolution sees; its state are the last but one")
    heads: Positive = 2
    key_dim: Positive = 4
    value_dim: Positive = 4
    dtype: Dtype = "float32"
    data: Literal["integer", "normal"] = Field(
        default="integer", description="integer: small whole numbers and powers of two, so that float32 rounds nothing"
    )
    padding: Literal["finite", "nan"] = Field(default="finite", description="what columns of padding hold")
    seed: Count = 0

    @property
    def channels(self) -> int:
        """How many channels are convolved."""
        values = self.heads * self.value_dim
        return 2 * self.heads * self.key_dim + values if self.layer == "gated-delta" else values + 2 * self.key_dim

    def spec(self, weights: RecurrentWeights) -> RecurrentSpec:
        """Return what the subject is told."""
        return RecurrentSpec(
            self.rows, self.layer, self.kernel, self.heads, self.key_dim, self.value_dim, self.dtype, weights
        )


class RecurrentCase(CaseModel):
    """One behavior of a recurrent layer's cache. Every step is a check point.

    `mask`, `lengths` and `counts` are compared at each chunk, `output` at its tokens; `conv-state`, `state` and
    `positions` after every step. Integer data is compared exactly, normal data within a derived bound.
    """

    kind: Literal["recurrent"]
    given: RecurrentGiven = Field(default_factory=RecurrentGiven)
    steps: Annotated[list[AnyStep], Field(min_length=1)]
    check: Annotated[list[Check], Field(min_length=1)]
    time: list[Literal["decode", "update"]] = Field(
        default_factory=list, description="behind the steps: one token, or a block like the last that is appended"
    )
