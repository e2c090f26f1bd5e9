"""What a case of kind `attention` may say: sizes, storage, who sees what, sinks, and the values of the arrays."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from harness.case.model import CaseModel, Count, Dtype, Positive, Strict, Whole
from harness.subjects.protocol import AffineStorage

Check = Literal["output", "rope", "untouched"]
Mask = Literal["none", "causal", "sliding", "ranges", "padded", "random", "blind"]
Sinks = Literal["none", "zeros", "normal", "half", "large", "lowest"]
Data = Literal["normal", "sparse", "large", "equal", "zeros", "pick", "pick-hidden"]
Values = Literal["normal", "offset", "cancel"]
Bias = Literal["none", "normal", "slopes"]
Views = Literal["contiguous", "transposed", "channels-first", "sliced", "stride-0"]
Range = Annotated[list[Count], Field(min_length=2, max_length=2)]


class AttentionGiven(Strict):
    """The arrays that attention is computed of.

    Queries are [rows, query_heads, queries, head_dim], keys and values [rows, kv_heads, keys, head_dim or value_dim].
    The check `rope` rotates the queries, and looks at nothing else.
    """

    rows: Positive = Field(default=1, description="requests in the batch")
    kv_heads: Positive = 1
    query_heads: Positive | None = Field(default=None, description="a multiple of kv_heads; default: the same")
    head_dim: Positive = 64
    value_dim: Positive | None = Field(default=None, description="default: head_dim")
    queries: Positive = Field(default=1, description="queries of a row and head")
    keys: Positive = Field(default=1, description="columns: keys, and values, of a row and head; `output` needs it")
    dtype: Dtype = "float32"
    storage: Annotated[str, Field(pattern=r"^(plain|affine[1-8]x\d+)$")] = "plain"
    scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="of the scores; default: head_dim ** -0.5"
    )
    mask: Mask = Field(
        default="none",
        description="causal: the last query sees every key; sliding: causal, and no further back than `window`; "
        "ranges: the keys of `ranges`, all queries alike; padded: causal within `ranges`; random: any, at least one; "
        "blind: every third query sees nothing, the others what `random` says",
    )
    mask_form: Literal["boolean", "additive"] | None = Field(
        default=None, description="default: boolean, and the word `causal` for a causal mask"
    )
    per_head: bool = Field(default=False, description="a random or blind mask, or a bias, for each query head")
    bias: Bias = Field(
        default="none",
        description="finite numbers that an additive mask holds where a query sees a key. normal: of about 2; slopes: "
        "less the further back, by 1/2, 1/4, ... for each head",
    )
    window: Positive | None = Field(default=None, description="keys a query sees, its own included")
    ranges: Annotated[list[Range], Field(min_length=1)] | None = Field(
        default=None, description="[first key, one past the last] of each row, repeated over the rows"
    )
    sinks: Sinks = Field(
        default="none",
        description="half: log(keys), half of the weight where scores are 0; large: 100; lowest: the lowest number",
    )
    data: Data = Field(
        default="normal",
        description="queries and keys. sparse: queries of four channels; large: scores of tens; equal: the keys of a "
        "head are all the same; zeros: queries are 0; pick: each query picks one key that it sees; pick-hidden: it "
        "would pick one next to those, which it doesn't see",
    )
    values: Values = Field(
        default="normal", description="offset: 1000 and a little; cancel: +-1000, and their opposites in the other half"
    )
    unseen: Literal["same", "loud"] = Field(
        default="same", description="columns that no query of a row sees; loud: values of 1000"
    )
    views: Views = Field(
        default="contiguous",
        description="how queries, keys and values lie in memory. transposed: tokens before heads; channels-first: "
        "tokens are the last axis; sliced: out of a larger array; stride-0: rows, or the heads of the only one, share "
        "one place, and so are equal",
    )
    offsets: Annotated[list[Whole], Field(min_length=1)] | None = Field(
        default=None, description="of `rope`: position of the first query of each row, repeated over the rows"
    )
    dims: Positive | None = Field(default=None, description="of `rope`: channels that turn; default: head_dim")
    traditional: bool = Field(default=False, description="of `rope`: neighboring channels are a pair, not halves")
    base: Annotated[float, Field(gt=1, allow_inf_nan=False)] = Field(default=10000.0, description="of `rope`")
    position_scale: Annotated[float, Field(gt=0, allow_inf_nan=False)] = Field(
        default=1.0, description="of `rope`: what positions are multiplied with"
    )
    one_offset: bool = Field(default=False, description="of `rope`: the offset is given as a number, not as an array")
    seed: Count = 0

    @field_validator("storage", mode="wrap")
    @classmethod
    def _storage(cls, value: Any, handler: Any) -> Any:
        try:
            return handler(value)
        except ValueError:
            message = f"{value!r} is no storage; write plain, or affine<bits>x<group> such as affine4x64"
            raise PydanticCustomError("storage", "{why}", {"why": message}) from None

    def affine(self) -> AffineStorage | None:
        """Return bits and group size, or None for plain storage."""
        if self.storage == "plain":
            return None
        bits, group = self.storage.removeprefix("affine").split("x")
        return AffineStorage(int(bits), int(group))

    @property
    def heads(self) -> int:
        """Query heads."""
        return self.query_heads or self.kv_heads

    @property
    def share(self) -> int:
        """Query heads that read one kv head."""
        return self.heads // self.kv_heads

    @property
    def factor(self) -> float:
        """The scale of the scores."""
        return self.head_dim**-0.5 if self.scale is None else self.scale

    @property
    def turned(self) -> int:
        """Channels that `rope` turns."""
        return self.dims or self.head_dim

    def offset_of(self, row: int) -> int:
        """Return the position of the first query of a row."""
        return self.offsets[row % len(self.offsets)] if self.offsets else 0

    def query_shape(self) -> tuple[int, ...]:
        """Return the shape of the queries."""
        return (self.rows, self.heads, self.queries, self.head_dim)

    def key_shape(self) -> tuple[int, ...]:
        """Return the shape of the keys."""
        return (self.rows, self.kv_heads, self.keys, self.head_dim)

    def value_shape(self) -> tuple[int, ...]:
        """Return the shape of the values."""
        return (*self.key_shape()[:-1], self.value_dim or self.head_dim)

    def result_shape(self) -> tuple[int, ...]:
        """Return the shape of the output."""
        return (*self.query_shape()[:-1], self.value_dim or self.head_dim)

    def range_of(self, row: int) -> tuple[int, int]:
        """Return the first key of a row and one past the last."""
        if not self.ranges:
            return 0, self.keys
        first, end = self.ranges[row % len(self.ranges)]
        return first, end


class AttentionCase(CaseModel):
    """One behavior of attention."""

    kind: Literal["attention"]
    given: AttentionGiven
    check: Annotated[list[Check], Field(min_length=1)]
    time: list[Literal["attention"]] = Field(default_factory=list)
