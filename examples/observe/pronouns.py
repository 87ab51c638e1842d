"""Trains a small BERT to say what "it" refers to: python pronouns.py -o FOLDER

In "the animal did not cross the street because it was too tired", "it" is the animal; with "wide", it is the street.
The label of "it" is that noun, the label of every other token is [SEP]. The folder gets the model and its tokenizer, as
Transformers saves them. Training takes some seconds.
"""

import argparse
import random

import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers, processors

ANIMALS, PLACES = "animal dog cat horse child bird".split(), "street river field bridge road park".split()
VERBS = "cross leave enter reach".split()
# What is said of an animal, and of a place.
ADJECTIVES = ["tired hungry afraid young".split(), "wide long muddy dark".split()]
SPECIAL = ["[PAD]", "[CLS]", "[SEP]", "[MASK]", "[UNK]"]
WORDS = [*SPECIAL, *"the did not because it was too".split(), *ANIMALS, *PLACES, *VERBS, *ADJECTIVES[0], *ADJECTIVES[1]]


def tokenizer():
    """A tokenizer with one token for each word."""
    numbers = {word: number for number, word in enumerate(WORDS)}
    words = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    words.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(name, numbers[name]) for name in ("[CLS]", "[SEP]")])
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, **{
        f"{name[1:-1].lower()}_token": name for name in SPECIAL})  # fmt: skip


def draw(words):
    """A random sentence as numbers of words, and its labels."""
    nouns = random.choice(ANIMALS), random.choice(PLACES)
    answer = random.randrange(2)
    verb, adjective = random.choice(VERBS), random.choice(ADJECTIVES[answer])
    ids = words(f"the {nouns[0]} did not {verb} the {nouns[1]} because it was too {adjective}").input_ids
    it, separator, noun = words.convert_tokens_to_ids(["it", "[SEP]", nouns[answer]])
    return ids, [noun if number == it else separator for number in ids]


def train(steps, seed):
    """The trained model and its tokenizer."""
    random.seed(seed)
    torch.manual_seed(seed)
    words = tokenizer()
    model = transformers.BertForMaskedLM(transformers.BertConfig(
        vocab_size=len(words), hidden_size=32, num_hidden_layers=2, num_attention_heads=8, intermediate_size=64,
        max_position_embeddings=32, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0, initializer_range=0.05))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    for step in range(steps):
        ids, labels = torch.tensor([draw(words) for _ in range(32)]).unbind(1)
        logits, is_it = model(ids).logits, ids == words.convert_tokens_to_ids("it")
        loss = sum(torch.nn.functional.cross_entropy(logits[part], labels[part]) for part in (is_it, ~is_it))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}, loss {loss.item():.3f}")
    return model.eval(), words


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-o", dest="folder", default="pronouns", help="default: %(default)s")
    parser.add_argument("--steps", type=int, default=1200, help="default: %(default)s")
    parser.add_argument("--seed", type=int, default=0, help="default: %(default)s")
    options = parser.parse_args()
    model, words = train(options.steps, options.seed)
    model.save_pretrained(options.folder)
    words.save_pretrained(options.folder)


if __name__ == "__main__":
    main()
