"""Tiny tokenizers and models, made on the spot: real files that the real libraries load."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
THINKING = CHATML.replace(
    "assistant\n{% endif %}",
    "assistant\n{% if enable_thinking is defined and enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}"
    "{% endif %}",
)
ALWAYS_THINKING = CHATML.replace("assistant\n{% endif %}", "assistant\n<think>\n{% endif %}")
WITH_BOS = "{{ bos_token }}" + CHATML


def make_tokenizer(
    folder: Path,
    template: str | None = CHATML,
    *,
    adds_bos: bool = False,
    adds_eos: bool = False,
    joined: tuple[str, ...] = (),
) -> Path:
    """A byte-level tokenizer: one token a byte, the special ones, and joined pairs such as `` A``."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<s>", "</s>", "<|im_start|>", "<|im_end|>"]
    pairs = [(pair[0].replace(" ", "Ġ"), pair[1]) for pair in joined]
    vocab = {token: index for index, token in enumerate([*special, *alphabet, *map("".join, pairs)])}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=pairs))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    if adds_bos or adds_eos:
        single = f"{'<s> ' if adds_bos else ''}$A{' </s>' if adds_eos else ''}"
        ends = [("<s>", 0), ("</s>", 1)]
        tokenizer.post_processor = processors.TemplateProcessing(single=single, special_tokens=ends)
    # As some published files have it: this must not cut prompts.
    tokenizer.enable_truncation(16)
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", additional_special_tokens=special[2:]
    )
    if template is not None:
        fast.chat_template = template
    folder.mkdir(parents=True, exist_ok=True)
    fast.save_pretrained(folder)
    return folder


def make_word_tokenizer(folder: Path, words: list[str]) -> Path:
    """A tokenizer of a few words; any other is unknown."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocab = {word: index for index, word in enumerate(["[UNK]", *words])}
    tokenizer = Tokenizer(models.WordLevel(vocab=vocab, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")
    folder.mkdir(parents=True)
    fast.save_pretrained(folder)
    return folder


def make_model(
    folder: Path,
    template: str | None = CHATML,
    seed: int = 0,
    context: int = 4096,
    family: str = "llama",
    **changes: Any,
) -> Path:
    """A model of 2 layers with random weights and the tokenizer above. vLLM's CPU kernels want its head size of 32.

    family: ``llama``; ``qwen2`` has biases, fewer heads for keys and a tied head; ``phi3`` has its projections fused in
    the file already. changes: of its config, and ``shard`` (bytes) for a checkpoint in several files.
    """
    import torch
    from transformers import CONFIG_MAPPING, AutoModelForCausalLM

    make_tokenizer(folder, template)
    torch.manual_seed(seed)
    shard = changes.pop("shard", "50GB")
    settings = {
        "vocab_size": 260,
        "hidden_size": 64,
        "intermediate_size": 128,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 1 if family == "qwen2" else 2,
        "head_dim": 32,
        "max_position_embeddings": context,
        "bos_token_id": 0,
        "eos_token_id": 1,
        "initializer_range": 0.2,
        "tie_word_embeddings": family == "qwen2",
        **({"pad_token_id": 1} if family == "phi3" else {}),
        **changes,
    }
    model = AutoModelForCausalLM.from_config(CONFIG_MAPPING[family](**settings))
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            # Else they are 0 and 1 in every checkpoint; seed 0 is the plain model.
            if seed and name.endswith(("bias", "norm.weight")):
                parameter.add_(0.1 * torch.randn_like(parameter))
    model.save_pretrained(folder, max_shard_size=shard)
    return folder


def make_adapter(folder: Path, base: Path, seed: int = 0, rank: int = 8) -> Path:
    """A LoRA adapter of random numbers over q_proj, v_proj and down_proj of a model made above, in peft's format."""
    import torch
    from safetensors import safe_open
    from safetensors.torch import save_file

    torch.manual_seed(seed)
    tensors = {}
    with safe_open(base / "model.safetensors", framework="pt") as weights:
        for name in weights.keys():  # noqa: SIM118  it is no mapping
            if name.endswith(("q_proj.weight", "v_proj.weight", "down_proj.weight")):
                rows, columns = weights.get_slice(name).get_shape()
                layer = f"base_model.model.{name.removesuffix('.weight')}"
                tensors[f"{layer}.lora_A.weight"] = 0.2 * torch.randn(rank, columns)
                tensors[f"{layer}.lora_B.weight"] = 0.2 * torch.randn(rows, rank)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(tensors, folder / "adapter_model.safetensors")
    config = {
        "peft_type": "LORA",
        "task_type": "CAUSAL_LM",
        "base_model_name_or_path": str(base),
        "r": rank,
        "lora_alpha": 2 * rank,
        "target_modules": ["q_proj", "v_proj", "down_proj"],
        "bias": "none",
    }
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def merge_adapter(folder: Path, base: Path, adapter: Path) -> Path:
    """The base model with W + alpha / r * B @ A (E. Hu et al., 2021), as a model folder of its own."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(base, folder)
    weights, lora = load_file(base / "model.safetensors"), load_file(adapter / "adapter_model.safetensors")
    told = json.loads((adapter / "adapter_config.json").read_text())
    for name in weights:
        layer = f"base_model.model.{name.removesuffix('.weight')}"
        if f"{layer}.lora_A.weight" in lora:
            low = lora[f"{layer}.lora_B.weight"] @ lora[f"{layer}.lora_A.weight"]
            weights[name] = weights[name] + told["lora_alpha"] / told["r"] * low
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
