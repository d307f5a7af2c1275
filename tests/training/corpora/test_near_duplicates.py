"""Near-duplicates: planted ones are found, others are let be, however they are asked."""

import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.corpora.near_duplicates import KEPT, NEAR, SAME, Screen

WORDS = ["".join(random.Random(n).choices("abcdefghijklmnopqrst", k=3 + n % 7)) for n in range(900)]


def document(seed, words=300):
    return " ".join(random.Random(seed).choices(WORDS, k=words))


def edited(text, share, seed=0):
    draw = random.Random(seed)
    return " ".join("changed" if draw.random() < share else word for word in text.split())


HELD_OUT = [document(seed) for seed in range(40)]


@pytest.fixture(scope="module")
def screen():
    return Screen.of(HELD_OUT)


def test_planted_documents_are_found_and_others_kept(screen):
    spaced = [text.replace(" ", "\n  ").upper() for text in HELD_OUT]
    near = [edited(text, 0.04) for text in HELD_OUT]
    inside = [f"{document(1000 + n)} {text} {document(2000 + n)}" for n, text in enumerate(HELD_OUT)]
    halves = [text[: len(text) // 2] for text in HELD_OUT]
    others = [document(seed) for seed in range(3000, 3400)]
    assert screen.verdicts(HELD_OUT + spaced) == [SAME] * 80
    assert screen.verdicts(near + inside + halves) == [NEAR] * 120
    changed = [edited(text, 0.3) for text in HELD_OUT]
    paragraphs = [f"{document(5000 + n)} {text[: len(text) // 4]}" for n, text in enumerate(HELD_OUT)]
    assert screen.verdicts(others + changed + paragraphs) == [KEPT] * 480


def test_a_print_of_several_validation_documents_counts_for_each():
    front = document(1, 100)
    screen = Screen.of([f"{front} {document(n, 60)}" for n in range(2, 8)])
    assert screen.verdicts([f"{front} {document(7, 60)} and so on"]) == [NEAR]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.sampled_from(range(80)), max_size=12), st.randoms())
def test_verdicts_do_not_depend_on_the_company(screen, numbers, draw):
    texts = [edited(document(n), 0.05 * (n % 3), n) if n % 2 else document(n, 20) for n in numbers]
    together = screen.verdicts(texts)
    assert together == [screen.verdicts([text])[0] for text in texts]
    order = list(range(len(texts)))
    draw.shuffle(order)
    assert screen.verdicts([texts[place] for place in order]) == [together[place] for place in order]


def test_windows_over_two_texts_count_for_neither():
    letters = "".join(random.Random(3).choices("abcdefghijklmnopqrst", k=5600))
    pieces = [letters[first : first + 56] for first in range(0, 5600, 56)]
    screen = Screen.of([letters])
    together = screen.verdicts(pieces)
    assert together == [screen.verdicts([piece])[0] for piece in pieces]
    assert KEPT in together


def test_short_texts_and_no_texts():
    screen = Screen.of(["Yes.", "", "A line of text of no great length, but of some."])
    assert screen.verdicts(["yes. ", "No.", "a  line of text of no great length, but of some."]) == [SAME, KEPT, SAME]
    assert Screen.of([]).verdicts(["anything", document(1)]) == [KEPT, KEPT]
    assert Screen.of(HELD_OUT).verdicts([]) == []


def test_a_text_beyond_one_block_is_found_at_any_place(monkeypatch, screen):
    long = document(9, 3000)
    whole = Screen.of([long])
    monkeypatch.setattr("training.corpora.near_duplicates._BYTES_AT_ONCE", 1000)
    pieces = Screen.of([long])
    np.testing.assert_array_equal(whole.prints, pieces.prints)
    assert pieces.verdicts([edited(long, 0.03), HELD_OUT[0]]) == [NEAR, KEPT]


def test_a_saved_screen_is_the_same(tmp_path, screen):
    screen.save(tmp_path)
    texts = [HELD_OUT[3], edited(HELD_OUT[4], 0.04), document(7000)]
    assert Screen.open(tmp_path).verdicts(texts) == screen.verdicts(texts) == [SAME, NEAR, KEPT]
    Screen.of([]).save(tmp_path)
    assert Screen.open(tmp_path).verdicts(texts) == [KEPT] * 3
