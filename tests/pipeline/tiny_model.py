"""A base model that tests continue: trained for a second, with a tokenizer of its own."""

from pathlib import Path

import torch
from transformers import AutoTokenizer

from training.base_model.examination import PLAIN_ENGLISH
from training.corpora.tokenizer import train_tokenizer
from training.model import build_model

END_OF_TURN = "<|im_end|>"
"""Its declared end of sequence."""


def tiny_model(folder: Path) -> Path:
    """A Hugging Face directory: a model that reads text after END_OF_TEXT, and noise after its declared end."""
    tokenizer = AutoTokenizer.from_pretrained(train_tokenizer(PLAIN_ENGLISH, 300, folder / "bpe"))
    tokenizer.add_special_tokens({"eos_token": END_OF_TURN, "bos_token": END_OF_TURN})
    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 64}
    shape = {"model_type": "qwen2", "num_key_value_heads": 2, "max_position_embeddings": 512, "bos_token_id": 300}
    model = build_model({**shape, **sizes, "vocab_size": 301, "eos_token_id": 300}, "eager", seed=0).train()
    texts = [tokenizer(text, add_special_tokens=False)["input_ids"][:60] for text in PLAIN_ENGLISH]
    optimizer = torch.optim.AdamW(model.parameters(), 1e-2)
    draw = torch.Generator().manual_seed(0)
    for _ in range(200):
        noise = torch.randint(0, 300, (4, 60), generator=draw)
        batch = torch.cat(
            [torch.tensor([[0, *text] for text in texts]), torch.nn.functional.pad(noise, (1, 0), value=300)]
        )
        model(input_ids=batch, labels=batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder / "model")
    tokenizer.save_pretrained(folder / "model")
    return folder / "model"
