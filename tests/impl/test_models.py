"""Which model types are supported, and how."""

from __future__ import annotations

import pytest

from impl.models import (
    DESCRIPTORS,
    MODEL_REMAPPING,
    is_diffusion_gemma_config,
    is_drafter_model_type,
    is_supported,
    is_supported_config,
    remap_model_type,
    support_tier,
)

KNOWN_REPOSITORY = "someone/MiniCPM5-1B-OptiQ-4bit"


@pytest.mark.parametrize(
    ("model_type", "repository", "tier"),
    [
        ("gemma4", "", "targeted"),
        ("gemma4_unified", "", "targeted"),
        ("gemma4_assistant", "", None),
        ("gemma4_unified_assistant", "", None),
        ("_assistant", "", None),
        ("llama_assistant", KNOWN_REPOSITORY, None),
        ("assistant", "", None),
        ("diffusion_gemma", "", "targeted"),
        ("diffusion_gemma_x", "", None),
        ("qwen3", "", "targeted"),
        ("qwen3_5", "", "targeted"),
        ("qwen3_5_text", "", "targeted"),
        ("qwen3_5_moe", "", None),
        ("llama", "", "generic"),
        ("llama", KNOWN_REPOSITORY, "targeted"),
        ("llama", "someone/another-llama", "generic"),
        ("mistral", KNOWN_REPOSITORY, "generic"),
        ("gemma", "", "generic"),
        ("gemma3", "", None),
        ("falcon_mamba", "", None),
        ("", "", None),
    ],
)
def test_tier(model_type: str, repository: str, tier: str | None) -> None:
    assert support_tier(model_type, repository) == tier
    assert is_supported(model_type, repository) is (tier is not None)


@pytest.mark.parametrize(
    ("model_type", "drafter"), [("gemma4_assistant", True), ("_assistant", True), ("assistant", False), ("", False)]
)
def test_drafters_end_in_the_suffix(model_type: str, drafter: bool) -> None:
    assert is_drafter_model_type(model_type) is drafter


def test_diffusion_is_an_exact_name() -> None:
    assert is_diffusion_gemma_config({"model_type": "diffusion_gemma"})
    assert not is_diffusion_gemma_config({"model_type": "diffusion_gemma_x"})
    assert not is_diffusion_gemma_config({"model_type": "gemma4"})
    assert not is_diffusion_gemma_config({})


def test_every_other_name_leads_to_one_that_is_no_other_name() -> None:
    for other, name in MODEL_REMAPPING.items():
        assert remap_model_type(other) == name
        assert remap_model_type(name) == name
        assert (support_tier(other) == "generic") == (name in DESCRIPTORS)


@pytest.mark.parametrize("model_type", sorted(DESCRIPTORS))
def test_a_generic_config_needs_every_number_of_its_description(model_type: str) -> None:
    config = {"model_type": model_type, **dict.fromkeys(DESCRIPTORS[model_type], 8)}
    assert is_supported_config(config)
    assert is_supported_config({"model_type": model_type, "text_config": config})
    if support_tier(model_type) == "targeted":
        return
    for key in DESCRIPTORS[model_type]:
        assert not is_supported_config({name: value for name, value in config.items() if name != key}), key
        assert not is_supported_config({**config, key: None}), key


@pytest.mark.parametrize(
    "config", [{}, {"model_type": None}, {"model_type": 3}, {"model_type": "llama", "text_config": "?"}]
)
def test_a_config_that_makes_no_sense_is_unsupported(config: dict[str, object]) -> None:
    assert not is_supported_config(config)
