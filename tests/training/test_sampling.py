"""The order of sequences: ratios after every prefix of each phase, every window once an epoch, no memory."""

import math
from fractions import Fraction
from itertools import accumulate, pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.sampling import Sampler, _left_counts, permuted

FAR = 10**12
quick = settings(deadline=None, max_examples=30)

NAMES = "abcde"
weights = st.lists(st.integers(0, 1000), min_size=1, max_size=5).filter(any)
# Denominators that no 64-bit product of an index and a ratio survives.
large_weights = st.lists(st.integers(1, 2**61), min_size=2, max_size=5)
# Of each phase: its length, and the parts of up to five corpora.
phases = st.lists(st.tuples(st.integers(1, 300), st.one_of(weights, large_weights)), min_size=1, max_size=5)


def mixture_of(parts: list[int]) -> dict[str, Fraction]:
    return {name: Fraction(part, sum(parts)) for name, part in zip(NAMES, parts)}


def sampler_of(parts, windows=50, seed=0):
    return Sampler(mixture_of(parts), dict.fromkeys(NAMES, windows), seed)


@settings(deadline=None, max_examples=60)
@given(phases, st.one_of(st.just(0), st.integers(0, 2 * 10**12)), st.integers(0, 9))
def test_ratios_hold_in_every_prefix_of_each_phase_and_corpora_are_read_on(drawn, first, seed) -> None:
    # The first phase is longer by `first`: later ones are as exact far out.
    lengths = [first + drawn[0][0], *(length for length, _ in drawn[1:])]
    mixtures = [mixture_of(parts) for _, parts in drawn]
    starts = [0, *accumulate(lengths)]
    windows = dict.fromkeys(NAMES, 37)
    sampler = Sampler(mixtures[0], windows, seed, list(zip(starts[1:], mixtures[1:])))
    for number, (mixture, length) in enumerate(zip(mixtures, lengths)):
        start = starts[number] + (first if number == 0 else 0)
        end = starts[number] + length
        corpus, position, epoch = sampler.sample(np.arange(start, end))
        assert not set(corpus) - {sampler.corpora.index(name) for name in mixture if mixture[name]}
        before, after = sampler.counts(starts[number]), sampler.counts(end)
        bound = 1 if len(mixture) == 2 else math.log2(len(mixture)) + 1
        for place, name in enumerate(sampler.corpora):
            here = corpus == place
            rank = sampler.counts(start)[name]
            # Relative to `rank`, since float64 has no digits left far out.
            due = float(before[name] + (start - starts[number]) * mixture.get(name, 0) - rank)
            read, more = np.cumsum(here), np.arange(1, end - start + 1) * float(mixture.get(name, 0))
            assert np.abs(read - due - more).max() <= bound + 1e-9
            assert after[name] == rank + read[-1]
            # The k-th sequence of a corpus is that of a run on the corpus alone.
            alone = Sampler({name: 1}, windows, seed).sample(rank + np.arange(read[-1]))
            np.testing.assert_array_equal(position[here], alone[1])
            np.testing.assert_array_equal(epoch[here], alone[2])
        assert sum(after.values()) == end


def test_one_call_may_span_phases_in_any_order() -> None:
    sampler = Sampler({"a": 1}, {"a": 50, "b": 50}, 3, [(20_000, {"a": "1/2", "b": "1/2"}), (33_000, {"b": 1})])
    whole = np.stack(sampler.sample(np.arange(40_000)))
    order = np.random.default_rng(0).permutation(40_000)
    np.testing.assert_array_equal(np.stack(sampler.sample(order)), whole[:, order])
    assert sampler.counts(40_000) == {"a": 26_500, "b": 13_500}


def test_every_window_comes_once_in_an_epoch_far_out():
    windows = 100_003
    sampler = Sampler({"a": "1/4", "b": "3/4"}, {"a": windows, "b": 10}, 5)
    number = 10**12 // windows // 4
    corpus, position, epoch = sampler.sample(np.arange(number * windows * 4, (number + 1) * windows * 4))
    read = position[(corpus == 0) & (epoch == number)]
    np.testing.assert_array_equal(np.sort(read), np.arange(windows))


@quick
@given(weights, st.one_of(st.integers(1, 40), st.sampled_from([64, 255, 256, 257])), st.integers(0, 2**70))
def test_every_window_comes_once_an_epoch(parts, windows, seed):
    sampler = sampler_of(parts, windows, seed)
    corpus, position, epoch = sampler.sample(np.arange(1500))
    for place in range(len(parts)):
        mine = corpus == place
        rank = np.arange(mine.sum())
        np.testing.assert_array_equal(epoch[mine], rank // windows)
        for number in range(len(rank) // windows):
            read = position[mine][number * windows : (number + 1) * windows]
            np.testing.assert_array_equal(np.sort(read), np.arange(windows))


def test_the_split_is_exact_where_products_overflow():
    draw = np.random.default_rng(0)
    for _ in range(300):
        whole = int(2 ** draw.uniform(1, 50))
        part = int(draw.integers(1, whole))
        ranks = draw.integers(0, 2 ** int(draw.integers(1, 62)), 20)
        lefts, is_left = _left_counts(ranks, part, whole)
        before, after = ([((int(rank) + more) * part + whole // 2) // whole for rank in ranks] for more in (0, 1))
        assert lefts.tolist() == before
        assert is_left.tolist() == [one < other for one, other in zip(before, after, strict=True)]


@pytest.mark.parametrize("corpora", [1, 2, 5, 8, 100])
def test_a_sequence_takes_as_many_splits_as_the_logarithm_of_the_corpora(corpora):
    def depth(node):
        return 0 if isinstance(node, int) else 1 + max(depth(node.left), depth(node.right))

    names = [str(number) for number in range(corpora)]
    sampler = Sampler(dict.fromkeys(names, Fraction(1, corpora)), dict.fromkeys(names, 50), 0)
    assert depth(sampler._phases[0].tree) == math.ceil(math.log2(corpora))


@quick
@given(weights, st.integers(0, FAR), st.lists(st.integers(0, 200), max_size=8), st.randoms())
def test_the_cut_into_batches_and_their_order_are_nothing(parts, start, cuts, random):
    sampler = sampler_of(parts)
    whole = np.stack(sampler.sample(np.arange(start, start + 200)))
    for low, high in pairwise(sorted({0, 200, *cuts})):
        np.testing.assert_array_equal(sampler.sample(np.arange(start + low, start + high)), whole[:, low:high])
    order = list(range(200))
    random.shuffle(order)
    np.testing.assert_array_equal(sampler.sample(start + np.array(order)), whole[:, order])


def test_seed_corpus_and_epoch_each_change_the_order():
    def first(seed=0, name="a", epoch=0):
        return Sampler({name: 1}, {name: 1000}, seed).sample(np.arange(epoch * 1000, epoch * 1000 + 1000))[1]

    orders = [first(), first(seed=1), first(name="b"), first(epoch=1), first(epoch=2**32)]
    for number, order in enumerate(orders):
        for other in orders[number + 1 :]:
            assert (order == other).mean() < 0.01


def test_the_order_does_not_change_from_release_to_release():
    sampler = Sampler({"general": "0.3", "law": "0.7"}, {"general": 1000, "law": 333}, 7)
    corpus, position, epoch = sampler.sample(np.concatenate([np.arange(6), FAR + np.arange(4)]))
    assert corpus.tolist() == [1, 0, 1, 1, 0, 1, 1, 0, 1, 1]
    assert position.tolist() == [277, 559, 259, 176, 691, 138, 134, 747, 30, 104]
    assert epoch.tolist() == [0, 0, 0, 0, 0, 0, 2102102102, 300000000, 2102102102, 2102102102]


def test_permutations_look_drawn():
    # Where 20,000 keys send one value of 10: a flat histogram (chi-square with 9 degrees, 1 in 10^5).
    for value in (0, 9):
        sent = permuted(np.full(20_000, value), 10, np.arange(20_000, dtype=np.uint64))
        counts = np.bincount(sent, minlength=10)
        assert ((counts - 2000) ** 2 / 2000).sum() < 40
    # Neighbours in rank are no neighbours in the corpus.
    order = permuted(np.arange(100_000), 100_000, np.zeros(100_000, np.uint64)).astype(float)
    for lag in (1, 2, 7):
        assert abs(np.corrcoef(order[lag:], order[:-lag])[0, 1]) < 0.02
    # A prefix of an epoch covers the corpus evenly.
    counts = np.bincount((order[:20_000] // 1000).astype(int), minlength=100)
    assert ((counts - 200) ** 2 / 200).sum() < 170


def test_the_order_of_the_mapping_and_corpora_without_a_ratio_are_nothing():
    plain = Sampler({"a": "0.3", "c": "0.7"}, {"a": 9, "c": 9}, 1)
    other = Sampler({"c": "0.7", "b": "0", "a": "0.3"}, {"c": 9, "a": 9}, 1)
    assert other.corpora == ("a", "b", "c")
    one, two = plain.sample(np.arange(500)), other.sample(np.arange(500))
    assert [plain.corpora[c] for c in one[0]] == [other.corpora[c] for c in two[0]]
    np.testing.assert_array_equal(one[1], two[1])
    assert other.counts(10) == {"a": 3, "b": 0, "c": 7}


@pytest.mark.parametrize(
    ("ratios", "windows", "message"),
    [
        ({"a": "0.5", "b": "0.4"}, {"a": 1, "b": 1}, "mixture: its ratios sum to 0.9; allowed: 1"),
        ({"a": "1.2", "b": "-0.2"}, {"a": 1, "b": 1}, r"mixture\.a: '1\.2' is not a ratio; allowed: 0 to 1"),
        ({"a": "nan"}, {"a": 1}, r"mixture\.a: 'nan'"),
        ({"a": "much"}, {"a": 1}, r"mixture\.a: 'much'"),
        ({"a": "1/0"}, {"a": 1}, r"mixture\.a: '1/0'"),
        ({"a": "1"}, {}, r"mixture\.a: its ratio is 1 and it has 0 windows"),
        ({"a": "1"}, {"a": 0}, r"mixture\.a: its ratio is 1 and it has 0 windows"),
        ({}, {}, "mixture: its ratios sum to 0"),
    ],
)
def test_mistakes_are_named(ratios, windows, message):
    with pytest.raises(ValueError, match=message):
        Sampler(ratios, windows, 0)


@pytest.mark.parametrize(
    ("later", "message"),
    [
        ([(8, {"b": "1/2"})], "mixture: its ratios sum to 0.5; allowed: 1"),
        ([(8, {"c": 1})], "mixture.c: its ratio is 1 and it has 0 windows"),
        ([(8, {"b": 1}), (8, {"a": 1})], "mixture: a phase at sequence 8; allowed: above 8"),
        ([(0, {"b": 1})], "mixture: a phase at sequence 0; allowed: above 0"),
    ],
)
def test_mistakes_in_later_phases_are_named(later, message) -> None:
    with pytest.raises(ValueError, match=message):
        Sampler({"a": 1}, {"a": 9, "b": 9}, 0, later)
