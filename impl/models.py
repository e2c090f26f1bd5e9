"""What a model type is, and how well it is supported: tables, and predicates that read them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

Tier = Literal["targeted", "generic"]

DRAFTER_SUFFIX: Final = "_assistant"
DIFFUSION_TYPE: Final = "diffusion_gemma"
TARGETED_PREFIXES: Final = ("gemma4",)
TARGETED_TYPES: Final = frozenset({DIFFUSION_TYPE, "qwen3_5", "qwen3_5_text", "qwen3"})
# Types of which only certain repositories have a forward pass of their own: a part of the name, in lower case.
TARGETED_REPOSITORIES: Final = {"llama": "minicpm5-1b-optiq-4bit"}

# Other names of a type, as in mlx-lm's table of the same name.
MODEL_REMAPPING: Final = {
    "mistral": "llama",
    "llava": "mistral3",
    "phi-msft": "phixtral",
    "falcon_mamba": "mamba",
    "joyai_llm_flash": "deepseek_v3",
    "kimi_k2": "deepseek_v3",
    "qwen2_5_vl": "qwen2_vl",
    "minimax_m2": "minimax",
    "iquestcoder": "llama",
}

_DENSE: Final = ("hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads")
_LLAMA: Final = (*_DENSE, "vocab_size", "rms_norm_eps")
# Types that one dense decoder runs by a description, and what a config must hold for it.
DESCRIPTORS: Final[Mapping[str, tuple[str, ...]]] = {
    "gemma": (*_LLAMA, "head_dim"),
    "gemma2": (*_LLAMA, "head_dim"),
    "glm4": (*_LLAMA, "attention_bias", "partial_rotary_factor"),
    "granite": (*_LLAMA, "attention_multiplier", "embedding_multiplier", "residual_multiplier", "logits_scaling"),
    "llama": _LLAMA,
    "olmo2": _LLAMA,
    "phi3": _LLAMA,
    "qwen2": _LLAMA,
    "qwen3": (*_LLAMA, "head_dim"),
    "smollm3": _LLAMA,
    "starcoder2": _DENSE,
}


def is_drafter_model_type(model_type: str) -> bool:
    """Whether this is a companion of a target model (`gemma4_assistant`), which can't be served by itself."""
    return model_type.endswith(DRAFTER_SUFFIX)


def is_diffusion_gemma_config(config: Mapping[str, Any]) -> bool:
    """Whether a config is that of a block diffusion model: supported, and never given to the autoregressive loop."""
    return config.get("model_type") == DIFFUSION_TYPE


def remap_model_type(model_type: str) -> str:
    """Return the type under which `model_type` is implemented."""
    return MODEL_REMAPPING.get(model_type, model_type)


def support_tier(model_type: str, repo_id: str = "") -> Tier | None:
    """Return how a type is supported: by code of its own, by a description, or not at all."""
    # First: `gemma4_assistant` begins like a target.
    if is_drafter_model_type(model_type):
        return None
    if model_type.startswith(TARGETED_PREFIXES) or model_type in TARGETED_TYPES:
        return "targeted"
    if (part := TARGETED_REPOSITORIES.get(model_type)) and part in repo_id.lower():
        return "targeted"
    return "generic" if remap_model_type(model_type) in DESCRIPTORS else None


def is_supported(model_type: str, repo_id: str = "") -> bool:
    """Whether a type is supported in one way or the other."""
    return support_tier(model_type, repo_id) is not None


def is_supported_config(config: Mapping[str, Any], repo_id: str = "") -> bool:
    """Whether a parsed `config.json` is supported; one that lacks what its type needs is not, and raises nothing.

    A multimodal config keeps the numbers of its language model in `text_config`.
    """
    model_type = config.get("model_type")
    if not isinstance(model_type, str):
        return False
    tier = support_tier(model_type, repo_id)
    if tier != "generic":
        return tier is not None
    numbers = config.get("text_config") or config
    needed = DESCRIPTORS[remap_model_type(model_type)]
    return hasattr(numbers, "get") and all(numbers.get(key) is not None for key in needed)
