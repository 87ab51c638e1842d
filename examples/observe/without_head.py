"""What a model of pronouns.py answers without one of its heads: python without_head.py FOLDER --layer 1 --text "..."

For each head of a layer, prints what "it" refers to, and the probability of it, if the output of this head is zero.
"""

import argparse

import torch
import transformers


def answer(model, words, text, layer=0, head=None):
    """The noun that "it" refers to and its probability, without a head of a layer."""
    projection = model.bert.encoder.layer[layer].attention.output.dense
    size = model.config.hidden_size // model.config.num_attention_heads

    def remove(module, arguments):
        heads = arguments[0].clone()
        heads[..., head * size : (head + 1) * size] = 0
        return heads

    hook = None if head is None else projection.register_forward_pre_hook(remove)
    inputs = words(text, return_tensors="pt")
    place = inputs.input_ids[0].tolist().index(words.convert_tokens_to_ids("it"))
    with torch.no_grad():
        probability, number = model(**inputs).logits[0, place].softmax(-1).max(-1)
    if hook:
        hook.remove()
    return words.convert_ids_to_tokens(number.item()), probability.item()


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder")
    parser.add_argument("--layer", type=int, default=0)
    parser.add_argument("--text", required=True, help='a sentence with "it"')
    options = parser.parse_args()
    transformers.logging.disable_progress_bar()
    words = transformers.AutoTokenizer.from_pretrained(options.folder)
    model = transformers.BertForMaskedLM.from_pretrained(options.folder).eval()
    print("all heads: {} {:.2f}".format(*answer(model, words, options.text)))
    for head in range(model.config.num_attention_heads):
        print("without head {}: {} {:.2f}".format(head, *answer(model, words, options.text, options.layer, head)))


if __name__ == "__main__":
    main()
