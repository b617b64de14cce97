"""The task and its reward: go on counting. A prompt is a stride and a number. The right answer has
the numbers that follow, each one a stride further, modulo NUMBERS.

Arithmetic alone checks the reward: no model judges, and nothing is downloaded."""

import random
from collections.abc import Iterator, Sequence

NUMBERS, STRIDES, ANSWER = 16, 3, 16
BEGIN, END = 1, 2
FIRST_STRIDE, FIRST_NUMBER = 4, 16  # tokens
VOCABULARY = 64
PROMPT = 3


def prompts(generator: random.Random) -> Iterator[list[int]]:
    """All of them, in another order each time, without end."""
    deck = [
        [BEGIN, FIRST_STRIDE + i, FIRST_NUMBER + number] for i in range(STRIDES) for number in range(NUMBERS)
    ]
    while True:
        generator.shuffle(deck)
        yield from deck


def right_answer(prompt: Sequence[int]) -> list[int]:
    stride, number = prompt[1] - FIRST_STRIDE + 1, prompt[2] - FIRST_NUMBER
    return [FIRST_NUMBER + (number + i * stride) % NUMBERS for i in range(1, ANSWER + 1)]


def rights_of(prompt: Sequence[int], answer: Sequence[int]) -> list[bool]:
    """Of each token whether it is right at its place."""
    return [mine == right for mine, right in zip(answer, right_answer(prompt), strict=True)]


def reward_of(prompt: Sequence[int], answer: Sequence[int]) -> float:
    """The share of the tokens that are right."""
    return sum(rights_of(prompt, answer)) / ANSWER
