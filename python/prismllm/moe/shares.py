"""Shares of the tokens as whole numbers of tokens, and whole tokens as choices of experts. No torch."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Sequence
from fractions import Fraction

Shares = Sequence[Sequence[float]]  # [steps][experts], each row in any unit; steps beyond the last begin again


def skewed(experts: int, minimum: float, maximum: float, steps: int = 1, seed: int = 0) -> list[list[float]]:
    """One expert gets `maximum` of the choices (0 to 1), one `minimum`, and the others the rest in equal parts; which
    is which changes from step to step. ValueError where such shares do not add up to one."""
    low, high = Fraction(str(minimum)), Fraction(str(maximum))
    if experts < 1 or not 0 <= low <= high <= 1:
        raise ValueError(
            f"{experts} experts, shares {minimum} to {maximum}; accepted: at least 1, 0 <= min <= max <= 1"
        )
    if experts == 1:
        others, row = Fraction(0), [Fraction(1)]
        fits = low <= 1 <= high
    elif experts == 2:
        others, row = low, [high, low]
        fits = low + high == 1
    else:
        others = (1 - low - high) / (experts - 2)
        row = [high, *[others] * (experts - 2), low]
        fits = low <= others <= high
    if not fits:
        raise ValueError(
            f"shares of {experts} experts between {minimum} and {maximum}, both reached, do not add up to 1; accepted "
            f"for {experts} experts: max + min + {experts - 2} x (a share between them) = 1"
        )
    rows = []
    for step in range(steps):
        order = list(range(experts))
        random.Random(f"{seed} {step}").shuffle(order)
        rows.append([float(row[place]) for place in order])
    return rows


def recorded(source: str | os.PathLike | Shares) -> list[list[float]]:
    """Histograms as they were observed: rows of tokens per expert, one a step, or a JSON file of them."""
    if isinstance(source, str | os.PathLike):
        with open(source) as file:
            source = json.load(file)
    rows = [[float(value) for value in row] for row in source]
    for step, row in enumerate(rows):
        if len(row) != len(rows[0]) or min(row, default=-1) < 0 or sum(row) <= 0:
            raise ValueError(
                f"histogram {step}: {row}; accepted: {len(rows[0])} numbers that are not negative, not all 0"
            )
    if not rows:
        raise ValueError("no histogram; accepted: at least one")
    return rows


def counts_of(shares: Sequence[float], tokens: int, top_k: int = 1, capacity: int | None = None) -> list[int]:
    """Tokens per expert: tokens * top_k choices in these shares, rounded so that they add up (largest remainders
    first). No expert can be chosen twice by a token, nor more often than `capacity`: what is too much goes to the
    others in their shares. ValueError where there is no room."""
    most = tokens if capacity is None else min(tokens, capacity)
    total, experts = tokens * top_k, len(shares)
    if top_k > experts or most * experts < total:
        raise ValueError(
            f"{total} choices of {experts} experts, each at most {most}; accepted: at most {most * experts} choices, "
            f"of at most {experts} a token"
        )
    weights = [Fraction(share) for share in shares]
    full: set[int] = set()
    while True:
        still = [expert for expert in range(experts) if expert not in full]
        left, weight = total - most * len(full), sum(weights[expert] for expert in still)
        exact = {e: weights[e] * left / weight if weight else Fraction(left, len(still)) for e in still}
        if not (over := {expert for expert in still if exact[expert] > most}):
            break
        full |= over
    counts = [most if expert in full else int(exact[expert]) for expert in range(experts)]
    by_remainder = sorted(still, key=lambda expert: (counts[expert] - exact[expert], expert))
    for expert in by_remainder[: total - sum(counts)]:
        counts[expert] += 1
    return counts


def assigned(counts: Sequence[int], tokens: int, top_k: int = 1) -> list[list[int]]:
    """For each token its top_k experts, all different, so that expert e is chosen counts[e] times."""
    if sum(counts) != tokens * top_k or max(counts, default=0) > tokens:
        raise ValueError(
            f"{list(counts)} of {tokens} tokens with {top_k} experts each; accepted: counts that add up to "
            f"{tokens * top_k}, none above {tokens}"
        )
    # Experts one behind the other, dealt to the tokens in turn: an expert's run is no longer than one round.
    run = [expert for expert, count in enumerate(counts) for _ in range(count)]
    return [run[token::tokens] for token in range(tokens)]


def dropped(counts: Sequence[int], capacity: int) -> list[int]:
    """Tokens per expert that a layer drops that serves `capacity` of each expert's."""
    return [max(0, count - capacity) for count in counts]
