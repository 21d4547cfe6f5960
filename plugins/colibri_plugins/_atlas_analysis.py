"""Which topics each expert prefers, and how well the experts alone tell a topic.

    share[e, run] = selections of e in a run / all selections of the run
    m[e, c]       = mean of share over the runs of topic c
    p[e, c]       = m[e, c] / sum over topics of m[e, c]
    H             = -sum of p ln p;  specialization = 1 - H / ln C;  lift = p[top] * C

Plain Python: a large model has twenty thousand experts, and thirty runs of them take seconds.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import nlargest
from typing import Any, Final

from colibri_cli.plugin_api import UsageError
from colibri_plugins._atlas_runs import Run

SPECIALIST: Final = 0.5  # specialization from which on an expert is called one


@dataclass(frozen=True, slots=True)
class Expert:
    """One expert and what it was chosen for.

    Args:
        layer: Number of its layer in the model.
        expert: Its number there.
        total: Selections in all runs.
        p: Affinity to each topic; they sum to 1.
        top: Index of the topic with the largest.
        num_fired: Runs of that topic in which it was chosen at all.
        num_runs: Runs of that topic.
    """

    layer: int
    expert: int
    total: int
    p: tuple[float, ...]
    top: int
    num_fired: int
    num_runs: int

    @property
    def entropy(self) -> float:
        """Of its affinities, in bits."""
        return sum(-p * math.log2(p) for p in self.p if p)

    @property
    def specialization(self) -> float:
        """1: one topic alone; 0: all alike."""
        return 1 - self.entropy / math.log2(len(self.p))

    @property
    def lift(self) -> float:
        """How often its top topic chooses it, by how often all topics do on average."""
        return self.p[self.top] * len(self.p)

    @property
    def is_specialist(self) -> bool:
        """Whether it is called one."""
        return self.specialization >= SPECIALIST


@dataclass(frozen=True, slots=True)
class Atlas:
    """All experts that are used enough.

    Args:
        topics: In the order of the sweep's files.
        experts: By layer and number.
        num_rare: Experts left out because they were chosen too seldom.
        num_unreplicated: Left out because too few runs of their top topic chose them.
    """

    topics: tuple[str, ...]
    experts: tuple[Expert, ...]
    num_rare: int
    num_unreplicated: int


def analyze(runs: Sequence[Run], *, min_count: int = 30, min_runs: int = 2) -> Atlas:
    """Return the affinities of all experts chosen often enough, and in enough runs.

    Raises:
        UsageError: there are fewer than two topics.
    """
    by_topic = _by_topic(runs)
    means = [_mean([run.shares for run in group]) for group in by_topic.values()]
    counts = {t: [_flat(run) for run in group] for t, group in by_topic.items()}
    places = [(layer, e) for layer, row in zip(runs[0].layers, runs[0].counts, strict=True)
              for e in range(len(row))]  # fmt: skip
    topics = tuple(by_topic)
    experts, num_rare, num_unreplicated = [], 0, 0
    for index, (layer, number) in enumerate(places):
        total = sum(row[index] for rows in counts.values() for row in rows)
        if total < max(min_count, 1):
            num_rare += 1
            continue
        weights = [mean[index] for mean in means]
        p = tuple(weight / sum(weights) for weight in weights)
        top = p.index(max(p))
        own = counts[topics[top]]
        num_fired = sum(row[index] > 0 for row in own)
        if num_fired < min_runs:
            num_unreplicated += 1
            continue
        experts.append(Expert(layer, number, total, p, top, num_fired, len(own)))
    return Atlas(topics, tuple(experts), num_rare, num_unreplicated)


@dataclass(frozen=True, slots=True)
class Guess:
    """What the experts of one run say it is about, judged by the other runs alone."""

    topic: str
    prompt: str
    guess: str


def validate(runs: Sequence[Run], *, k: int = 200) -> list[Guess]:
    """Leave out one run after the other and guess its topic from the experts it chose.

    Each topic is represented by the `k` experts with the largest affinity to it; the topic wins
    whose experts were chosen most in the run that was left out, by what they are chosen on average:
    popular experts alone decide nothing.

    Raises:
        UsageError: a topic has one run only, or there are fewer than two topics.
    """
    by_topic = _by_topic(runs)
    for topic, group in by_topic.items():
        if len(group) < 2:
            raise UsageError(
                f"the topic {topic} has one run: nothing is left of it when that is left out",
                hint="sweep with at least two prompts of each topic",
            )
    shares = {topic: [run.shares for run in group] for topic, group in by_topic.items()}
    means = {topic: _mean(rows) for topic, rows in shares.items()}
    guesses = []
    for topic, group in by_topic.items():
        for number, run in enumerate(group):
            others = [row for i, row in enumerate(shares[topic]) if i != number]
            known = {**means, topic: _mean(others)}
            guesses.append(Guess(topic, run.prompt, _guess(shares[topic][number], known, k)))
    return guesses


def _guess(share: Sequence[float], means: Mapping[str, Sequence[float]], k: int) -> str:
    usual: list[float] = [sum(row) / len(means) for row in zip(*means.values(), strict=True)]
    chosen = [index for index, mean in enumerate(usual) if mean]

    def score(topic: str) -> float:
        mean = means[topic]
        own: list[int] = nlargest(k, chosen, key=lambda index: mean[index] / usual[index])
        lift: float = sum(share[i] for i in own) / sum(usual[i] for i in own)
        return lift

    return max(means, key=score)


def report(atlas: Atlas) -> dict[str, Any]:
    """Return all figures, for research."""
    return {
        "categories": list(atlas.topics),
        "num_rare": atlas.num_rare,
        "num_unreplicated": atlas.num_unreplicated,
        "experts": [
            {
                "layer": e.layer,
                "expert": e.expert,
                "total": e.total,
                "spec": round(e.specialization, 6),
                "top_topic": atlas.topics[e.top],
                "top_lift": round(e.lift, 6),
                "reliability": f"{e.num_fired}/{e.num_runs}",
                "p": dict(zip(atlas.topics, (round(p, 6) for p in e.p), strict=True)),
            }
            for e in atlas.experts
        ],
    }


def page_data(atlas: Atlas) -> dict[str, Any]:
    """Return what the dashboard reads: `experts.json`."""
    return {
        "categories": list(atlas.topics),
        "experts": {
            f"{e.layer}:{e.expert}": {
                "affinity": dict(zip(atlas.topics, (round(p, 4) for p in e.p), strict=True)),
                "entropy": round(e.entropy, 2),
                "top": atlas.topics[e.top],
                "label": f"specialist: {atlas.topics[e.top]}" if e.is_specialist else "generalist",
            }
            for e in atlas.experts
        },
    }


def _by_topic(runs: Sequence[Run]) -> dict[str, list[Run]]:
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(run.topic, []).append(run)
    if len(found) < 2:
        raise UsageError(f"there are runs of {', '.join(found)} alone", hint="sweep more topics")
    return found


def _flat(run: Run) -> list[int]:
    return [count for row in run.counts for count in row]


def _mean(rows: Sequence[Sequence[float]]) -> list[float]:
    return [sum(values) / len(rows) for values in zip(*rows, strict=True)]
