"""What a case of kind `ring` may say: the cache it asks for, the steps that happen to it, what is checked and timed."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, field_validator
from pydantic_core import PydanticCustomError

from harness.case.model import CaseModel, Count, Dtype, Positive, Strict
from harness.kinds.ring.arguments import PerRow
from harness.kinds.ring.steps import AnyStep, Check
from harness.subjects.protocol import AffineStorage, Layout, RingSpec

Timed = Literal["append", "decode", "attention"]


class RingGiven(Strict):
    """The cache that the case asks for."""

    window: Positive | Literal["none"] = Field(description="tokens a query sees, itself included; none: a full cache")
    rows: Positive = Field(default=1, description="requests in the batch")
    kv_heads: Positive = 2
    query_heads: Positive | None = Field(default=None, description="a multiple of kv_heads; default: the same")
    head_dim: Positive = 64
    value_dim: Positive | None = Field(default=None, description="default: head_dim")
    dtype: Dtype = "float32"
    storage: Annotated[str, Field(pattern=r"^(plain|affine[1-8]x\d+)$")] = "plain"
    layout: Layout = Field(
        default="ring",
        description="how rows are stored, where a subject has several ways; aligned: every row in planes of its own, "
        "all in common columns; affine: rows packed, masks always arrays; speculative-affine: packed, and masks as "
        "short as can be",
    )
    crossing: PerRow | None = Field(
        default=None,
        description="tokens at which a plain row becomes affine, as `storage` says; one number a row, repeated",
    )
    sinks: Count = Field(default=0, description="tokens kept at the front for good")
    chunked: bool = Field(
        default=False, description="keep the newest `window` tokens before an update, then show those"
    )
    seed: Count = 0

    @field_validator("window", mode="before")
    @classmethod
    def _window(cls, value: Any) -> Any:
        if value is None:
            raise PydanticCustomError("window", "must be a number or `none` (a full cache)")
        return value

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

    def spec(self) -> RingSpec:
        """Return what the subject is told: everything but the seed."""
        return RingSpec(
            window=None if self.window == "none" else self.window,
            rows=self.rows,
            kv_heads=self.kv_heads,
            query_heads=self.query_heads or self.kv_heads,
            head_dim=self.head_dim,
            value_dim=self.value_dim or self.head_dim,
            dtype=self.dtype,
            storage=self.affine(),
            sinks=self.sinks,
            chunked=self.chunked,
            layout=self.layout,
            crossing=tuple(self.crossing[row % len(self.crossing)] for row in range(self.rows))
            if self.crossing
            else (),
        )


class StepsCase(CaseModel):
    """A cache and the steps that happen to it: what kinds that look at caches have in common."""

    given: RingGiven
    steps: Annotated[list[AnyStep], Field(min_length=1)]
    pins: Literal["reference"] | None = Field(default=None, description="whose layout and policy `pin` steps state")

    @property
    def checks(self) -> tuple[str, ...]:
        """What is compared at every check point."""
        raise NotImplementedError


class RingCase(StepsCase):
    """One behavior of a KV cache."""

    kind: Literal["ring"]
    check: Annotated[list[Check], Field(min_length=1)]
    time: list[Timed] = Field(default_factory=list)

    @property
    def checks(self) -> tuple[str, ...]:
        """What is compared after every step, or where a step `check` says so."""
        return tuple(self.check)
