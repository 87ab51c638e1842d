"""The plan of form_table.py: which form, features, target and element type each of its programs has.

The plan is the same in every run; the number of a program determines its entry. It covers every combination of a form,
a feature, a target and a type, so every pair and triple of them, and all pairs of features that may be together.
"""

import collections
import functools
import itertools
import random

# Queries of a head: 17 to 40 in a prefill, one to eight where split-KV reads the keys.
FORMS = ["prefill", "split-KV", "lengths, prefill", "lengths, split-KV", "ragged prefill", "ragged split-KV",
         "ragged mixed"]  # fmt: skip
CPU_TARGETS = ["portable", "v3", "v4-expanded", "v4-bf16-expanded"]
GPU_TARGETS = ["sm_75", "sm_80"]
TARGETS = CPU_TARGETS + GPU_TARGETS
TYPES = ["f32", "f16", "bf16", "f64"]
MASKS = ["causal", "window", "documents", "captured mask"]
FEATURES = {
    "score region": "a region of one to three random steps on each score",
    "soft-cap": "cap · tanh(score / cap)",
    "bias table": "a captured tensor over some of batch, head, query and key, added to scores",
    "captured scalar": "scores multiplied by a number that the caller gives",
    "causal": "a causal mask: top left, bottom right or shifted",
    "window": "a window, open on one side or on none",
    "documents": "a query attends to the keys of its own document, by a captured tensor",
    "captured mask": "a random condition over captured tensors of flags",
    "empty rows": "some queries attend to no key",
    "weight region": "a region that is proportional to the softmax weight",
    "normalized weights": "a region that needs normalized weights, so a second pass over the keys",
    "tally": "one or two sums of weights by bins of keys",
    "max": "the row maximum as a result",
    "argmax": "its position as a result",
    "sink": "a score without a key, for each head or for all",
    "log-sum-exp": "the log-sum-exp as a result",
    "scale": "a constant, or a number that the caller gives",
    "position": "`at`: positions begin elsewhere than at 0",
    "grouped heads": "several query heads for each KV head",
    "KV heads": "more than one KV head",
    "odd head size": "head sizes that are no multiple of 8",
    "layout": "dimensions of operands and result in any order",
    "strides": "operands that are slices of larger tensors",
}
PROGRAMS = 2000
# As many programs cover every pair of form, target, type and feature.
QUICK = 48

Entry = collections.namedtuple("Entry", "form target type features")


def may_join(feature, chosen):
    """Whether a program may have the feature beside the chosen ones. More than two masks would hide nearly all keys."""
    if feature in MASKS and len(set(MASKS) & set(chosen)) > 1:
        return False
    return not {"weight region", "normalized weights"} <= {feature, *chosen}


# What weights without a sum do not have.
OF_SOFTMAX = {"normalized weights", "tally", "max", "argmax", "sink", "log-sum-exp"}


def with_normalizer(entry):
    """The entry with a normalizer in place of the softmax."""
    return entry._replace(features=[each for each in entry.features if each not in OF_SOFTMAX] + ["normalizer"])


def with_stick_breaking(entry, number):
    """The same with stick-breaking, which has kernels for CPUs only."""
    target = entry.target if entry.target in CPU_TARGETS else CPU_TARGETS[number % len(CPU_TARGETS)]
    features = [each for each in entry.features if each not in OF_SOFTMAX]
    return entry._replace(target=target, features=[*features, "stick-breaking"])


def subjects(entry):
    """All that an entry shows: its pairs, triples and quadruples with at most two features, as sorted tuples."""
    form, target, element, features = entry
    for feature in features:
        yield from ((form, feature), (target, feature), (element, feature), (form, target, feature),
                    (form, element, feature), (target, element, feature), (form, target, element, feature))  # fmt: skip
    for pair in itertools.combinations(sorted(features), 2):
        yield from (pair, (form, *pair))
    yield from ((form, target), (form, element), (target, element), (form, target, element))


def is_possible(subject):
    features = [part for part in subject if part in FEATURES]
    return all(may_join(feature, features[:i]) for i, feature in enumerate(features))


@functools.cache
def all_subjects():
    """What the plan must cover."""
    combinations = itertools.product(FORMS, TARGETS, TYPES)
    everything = {subject for parts in combinations for subject in subjects(Entry(*parts, list(FEATURES)))}
    return {subject for subject in everything if is_possible(subject)}


def uncovered(entries):
    """What the plan must cover and none of these entries has."""
    return all_subjects() - {subject for entry in entries for subject in subjects(entry)}


def make_plan(count=PROGRAMS):
    """The entries, in order. Forms, targets and types take turns; a program gets the features that are rarest so far."""
    rng, drawn, plan = random.Random(0), collections.Counter(), []
    for number in range(count):
        form, target = number % len(FORMS), number // len(FORMS) % len(TARGETS)
        element = TYPES[(form + target + number // len(FORMS) // len(TARGETS)) % len(TYPES)]
        entry = Entry(FORMS[form], TARGETS[target], element, [])
        size = 7 if number < QUICK else rng.randint(3, 7)
        while len(entry.features) < size:
            able = [feature for feature in FEATURES if feature not in entry.features and may_join(feature, entry.features)]
            rank = rarity_of_pairs if number < QUICK else rarity
            entry.features.append(min(able, key=lambda feature: rank(feature, entry, drawn, rng)))
        drawn.update(subjects(entry))
        plan.append(entry)
    return plan


def rarity_of_pairs(feature, entry, drawn, rng):
    form, target, element, chosen = entry
    new = sum(not drawn[part, feature] for part in (form, element)) + 3 * (not drawn[target, feature])
    return (-2 * new - sum(not drawn[tuple(sorted((feature, other)))] for other in chosen), rng.random())


def rarity(feature, entry, drawn, rng):
    form, target, element, chosen = entry
    pairs = [tuple(sorted((feature, other))) for other in chosen]
    return (drawn[form, target, element, feature], drawn[form, feature], drawn[target, feature] + drawn[element, feature],
            sum(drawn[pair] + 3 * drawn[form, *pair] for pair in pairs), rng.random())  # fmt: skip
