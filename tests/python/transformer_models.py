"""Models of Hugging Face's transformers, from configurations alone: each is a builder, a batch and a loss.

All are a few thousand parameters in size, without dropout.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]

WORDS = 67


def _library() -> Any:
    """The library, which takes seconds to import, so that only those wait for it who need it.

    A test is skipped where it is missing, or cannot use a torch as old as this one.
    """
    transformers = pytest.importorskip("transformers")
    if not transformers.utils.is_torch_available():
        pytest.skip(f"transformers {transformers.__version__} wants a newer torch than {torch.__version__}")
    return transformers


def _words(generator: torch.Generator, step: int) -> Batch:
    words = torch.randint(WORDS, (2, 12), generator=generator)
    return {"input_ids": words, "labels": words}


def _own_loss(model: nn.Module, batch: Batch) -> Tensor:
    """The loss that the model computes from its labels."""
    loss: Tensor = model(**batch).loss
    return loss.float()


def gpt2() -> nn.Module:
    """Its last layer has the weight of the embedding."""
    library = _library()
    config = library.GPT2Config(
        vocab_size=WORDS,
        n_positions=16,
        n_embd=24,
        n_layer=3,
        n_head=2,
        resid_pdrop=0.0,
        embd_pdrop=0.0,
        attn_pdrop=0.0,
        bos_token_id=0,
        eos_token_id=0,
    )
    model: nn.Module = library.GPT2LMHeadModel(config)
    return model


gpt2_batch = _words
gpt2_loss = _own_loss

_LLAMA = {
    "vocab_size": WORDS,
    "hidden_size": 24,
    "intermediate_size": 40,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 32,
    "use_cache": False,
}


def llama() -> nn.Module:
    library = _library()
    model: nn.Module = library.LlamaForCausalLM(library.LlamaConfig(**_LLAMA))
    return model


llama_batch = _words
llama_loss = _own_loss


def mixtral() -> nn.Module:
    """Each word goes to two of four experts, of which some have no word in a batch."""
    library = _library()
    config = library.MixtralConfig(
        **_LLAMA,
        num_local_experts=4,
        num_experts_per_tok=2,
        output_router_logits=True,
        experts_implementation="eager",
    )
    model: nn.Module = library.MixtralForCausalLM(config)
    return model


mixtral_batch = _words
mixtral_loss = _own_loss


def qwen3_moe() -> nn.Module:
    """The first layer is dense, the second has eight experts, and heads have norms of their own."""
    library = _library()
    config = library.Qwen3MoeConfig(
        **_LLAMA,
        head_dim=8,
        moe_intermediate_size=16,
        num_experts=8,
        num_experts_per_tok=2,
        mlp_only_layers=[0],
        experts_implementation="eager",
    )
    model: nn.Module = library.Qwen3MoeForCausalLM(config)
    return model


qwen3_moe_batch = _words
qwen3_moe_loss = _own_loss


def t5() -> nn.Module:
    """Encoder and decoder share an embedding; the first layer of each has a table of positions."""
    library = _library()
    config = library.T5Config(
        vocab_size=WORDS,
        d_model=24,
        d_kv=8,
        d_ff=32,
        num_layers=2,
        num_heads=3,
        dropout_rate=0.0,
        relative_attention_num_buckets=8,
        use_cache=False,
        decoder_start_token_id=0,
        pad_token_id=0,
    )
    model: nn.Module = library.T5ForConditionalGeneration(config)
    return model


def t5_batch(generator: torch.Generator, step: int) -> Batch:
    return {
        "input_ids": torch.randint(WORDS, (2, 10), generator=generator),
        "labels": torch.randint(WORDS, (2, 7), generator=generator),
    }


t5_loss = _own_loss


def bert() -> nn.Module:
    library = _library()
    config = library.BertConfig(
        vocab_size=WORDS,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=40,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
    )
    model: nn.Module = library.BertForMaskedLM(config)
    return model


bert_batch = _words
bert_loss = _own_loss


def vit() -> nn.Module:
    library = _library()
    config = library.ViTConfig(
        image_size=12,
        patch_size=4,
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=40,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        num_labels=5,
    )
    model: nn.Module = library.ViTForImageClassification(config)
    return model


def vit_batch(generator: torch.Generator, step: int) -> Batch:
    return {
        "pixel_values": torch.randn((4, 3, 12, 12), generator=generator),
        "labels": torch.randint(5, (4,), generator=generator),
    }


vit_loss = _own_loss


def whisper() -> nn.Module:
    """Its encoder's table of positions is a parameter that is frozen."""
    library = _library()
    config = library.WhisperConfig(
        vocab_size=WORDS,
        num_mel_bins=8,
        d_model=24,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=32,
        decoder_ffn_dim=32,
        max_source_positions=10,
        max_target_positions=16,
        dropout=0.0,
        use_cache=False,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
    )
    model: nn.Module = library.WhisperForConditionalGeneration(config)
    return model


def whisper_batch(generator: torch.Generator, step: int) -> Batch:
    return {
        "input_features": torch.randn((2, 8, 20), generator=generator),
        "labels": torch.randint(WORDS, (2, 7), generator=generator),
    }


whisper_loss = _own_loss


def mamba() -> nn.Module:
    """Without its kernels for GPUs it runs a loop over the positions."""
    library = _library()
    config = library.MambaConfig(
        vocab_size=WORDS,
        hidden_size=16,
        state_size=4,
        num_hidden_layers=2,
        expand=2,
        conv_kernel=4,
        use_cache=False,
    )
    model: nn.Module = library.MambaForCausalLM(config)
    return model


mamba_batch = _words
mamba_loss = _own_loss
