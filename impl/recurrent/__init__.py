"""Recurrent layers and their cache: padded prefills for layers that carry a state instead of keys and values."""

from impl.recurrent.cache import RecurrentCache
from impl.recurrent.errors import RecurrentError, StateNotTrimmableError
from impl.recurrent.layers import RecurrentLayer, gated_delta_layer, rollback, run_layer, selective_scan_layer
from impl.recurrent.padding import PrefillPadding, SsmPrefillPadding

__all__ = [
    "PrefillPadding",
    "RecurrentCache",
    "RecurrentError",
    "RecurrentLayer",
    "SsmPrefillPadding",
    "StateNotTrimmableError",
    "gated_delta_layer",
    "rollback",
    "run_layer",
    "selective_scan_layer",
]
