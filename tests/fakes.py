"""Tiny tokenizers and models, made on the spot: real files that the real libraries load."""

from __future__ import annotations

from pathlib import Path

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


def make_model(folder: Path, template: str | None = CHATML, seed: int = 0, context: int = 4096) -> Path:
    """A Llama of 2 layers with random weights and the tokenizer above. vLLM's CPU kernels want its head size of 32."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM

    make_tokenizer(folder, template)
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=260,
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=context,
        bos_token_id=0,
        eos_token_id=1,
        initializer_range=0.2,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder
