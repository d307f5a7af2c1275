"""Examine a base model before its first run: weights, tokenizer, and the token that should precede a document."""

import re
from pathlib import Path

import torch
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedModel

from training.base_model.description import BaseModel
from training.corpora.tokenizer import end_of_text_id, id_count, load_tokenizer, vocabulary_problem
from training.model import NOT_CAUSAL, model_from_directory, non_finite_weight, sees_later_tokens
from training.parameters import model_size
from training.spec import SpecError

NONE = "none"
"""In place of a token: nothing precedes the text."""
CANDIDATES = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<s>", "<eos>", "<bos>")
"""Tokens that models were trained with between documents, beside those that a tokenizer declares."""
MARGIN = 0.02
"""The declared end-of-sequence token stays unless another one's perplexity is lower by this ratio."""
PLAIN_ENGLISH = (
    "The harbour froze every winter until the middle of the last century, and the older people in the town still talk "
    "about it. For eight or ten weeks no ship could leave. The fishermen mended their nets, the children skated "
    "between the hulls, and the baker, who had bought enough flour in October to last until spring, sold bread on "
    "credit. When the ice finally broke, the whole town came down to the water to watch the first boat go out.",
    "A battery stores energy by keeping two materials apart that would like to react with each other. When the "
    "terminals are connected by a wire, electrons flow through the wire from one material to the other, while charged "
    "particles move through the liquid between them to keep the balance. Charging the battery pushes both of them "
    "back. Each cycle leaves a little of the material in a form that can no longer take part, which is why an old "
    "battery holds less than a new one.",
    "My grandmother made soup from whatever was left at the end of the week. She began with onions, which she cooked "
    "slowly in butter until they were soft and sweet, and then added carrots, potatoes and a handful of beans. She "
    "never measured anything. When we asked her how much salt to use, she told us to taste it and think about it, and "
    "then to taste it again.",
    "The committee met on Tuesday to discuss the new library. Most of the members agreed that the building in the "
    "market square was too small and that the roof would not survive another storm. They did not agree about the "
    "money. One of them suggested that the council should sell the old building first, but the treasurer explained "
    "that it would take at least two years to find a buyer.",
)
"""Texts of about a hundred tokens each, on which the perplexity by preceding token is measured."""


def examine(folder: Path, source: str, names: str) -> BaseModel:
    """Load a Hugging Face directory as a run would, check it, and measure the perplexity by preceding token.

    `source` is where its weights come from; `names` are its names, in which "instruct" or "chat" tells its kind.

    Raises:
        SpecError: no model in it, none that is causal, a weight that is not finite, or a tokenizer of another model.
        CorpusError: no tokenizer in it.
    """
    model = model_from_directory(folder, "sdpa").eval()
    tokenizer = load_tokenizer(folder)
    if problem := non_finite_weight(model):
        raise SpecError(f"{folder}: {problem}")
    if problem := vocabulary_problem(
        id_count(tokenizer), model.get_input_embeddings().get_parameter("weight").shape[0]
    ):
        raise SpecError(f"{folder}: {problem}")
    if sees_later_tokens(model):
        raise SpecError(f"{folder}: {NOT_CAUSAL.format(model.config.model_type)}")
    end = tokenizer.convert_ids_to_tokens(end_of_text_id(tokenizer))
    assert isinstance(end, str)
    known = tokenizer.get_vocab()
    named = dict.fromkeys([end, tokenizer.bos_token, tokenizer.eos_token, *CANDIDATES])
    candidates = {token: known[token] for token in named if token in known}
    texts = [tokenizer(text, add_special_tokens=False)["input_ids"] for text in PLAIN_ENGLISH]
    values = {token: perplexity(model, texts, [number]) for token, number in candidates.items()}
    best = min(values, key=lambda token: values[token])
    word = re.search(r"instruct|chat|(?<![a-z])(it|sft|dpo)(?![a-z])", names, re.IGNORECASE)
    by_template = "its tokenizer has a chat template" if tokenizer.chat_template else ""
    size = model_size(model.config.to_dict(), 1)
    return BaseModel(
        source=source,
        instruction_tuned=f"its name has {word.group()!r}" if word else by_template,
        model_type=model.config.model_type,
        parameters=size.total,
        non_embedding=size.non_embedding,
        perplexity=values | {NONE: perplexity(model, texts, [])},
        separator=best if values[best] < (1 - MARGIN) * values[end] else end,
        end_of_text=end,
    )


@torch.inference_mode()
def perplexity(model: PreTrainedModel, texts: list[list[int]], before: list[int]) -> float:
    """exp of the mean cross-entropy of token ids, the first of each text apart, with ids before every text."""
    rows = [torch.tensor([*before, *text]) for text in texts]
    targets = [torch.tensor([-100] * len(before) + [-100, *text[1:]]) for text in texts]
    inputs = pad_sequence(rows, batch_first=True)
    logits = model(input_ids=inputs, use_cache=False).logits[:, :-1].float()
    wanted = pad_sequence(targets, batch_first=True, padding_value=-100)[:, 1:]
    return float(functional.cross_entropy(logits.transpose(1, 2), wanted, ignore_index=-100).exp())
