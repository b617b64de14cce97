"""The task and its reward: go on counting. A prompt is a stride and a number. The right answer has
the numbers that follow, each one a stride further, modulo NUMBERS.

Arithmetic alone checks the reward: no model judges, and nothing is downloaded."""

import random
from collections.abc import Sequence

NUMBERS, STRIDES, ANSWER = 32, 4, 24
BEGIN, END = 1, 2
FIRST_STRIDE, FIRST_NUMBER = 4, 16  # tokens
VOCABULARY = 64
PROMPT = 3


def prompt_of(generator: random.Random) -> list[int]:
    return [BEGIN, FIRST_STRIDE + generator.randrange(STRIDES), FIRST_NUMBER + generator.randrange(NUMBERS)]


def right_answer(prompt: Sequence[int]) -> list[int]:
    stride, number = prompt[1] - FIRST_STRIDE + 1, prompt[2] - FIRST_NUMBER
    return [FIRST_NUMBER + (number + i * stride) % NUMBERS for i in range(1, ANSWER + 1)]


def reward_of(prompt: Sequence[int], answer: Sequence[int]) -> float:
    """The share of the tokens that are right, each at its own place."""
    return sum(mine == right for mine, right in zip(answer, right_answer(prompt), strict=True)) / ANSWER
