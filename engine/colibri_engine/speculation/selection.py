"""Which sources of drafts an engine has: what was asked for, as far as the model allows it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final, cast

from colibri_engine.errors import UnsupportedModel
from colibri_engine.kernels import Batch
from colibri_engine.notices import tell
from colibri_engine.speculation.base import Source
from colibri_engine.speculation.cost import CostPolicy, FixedDepth, Policy
from colibri_engine.speculation.drafting import Drafting, Guard
from colibri_engine.speculation.grammar import GrammarDrafter
from colibri_engine.speculation.mtp import MtpDrafter
from colibri_engine.speculation.ngram import NgramDrafter
from colibri_engine.speculation.reads import MeasuredReads

if TYPE_CHECKING:
    from colibri_engine.engine_config import DraftConfig, EngineConfig
    from colibri_engine.experts.store import ExpertStore
    from colibri_engine.models.base import DraftModel, Model
    from colibri_engine.speculation.base import Drafter

logger = logging.getLogger(__name__)

_OFF: Final = "off"
_AUTO: Final = "auto"


def wants_draft_layer(config: DraftConfig) -> bool:
    """Whether a layer that only drafts would be used."""
    wants_any = config.source != _OFF and config.tokens != 0
    return wants_any and config.has_mtp and Source.MTP in _sources(config)


def make_drafting(
    settings: EngineConfig, model: Model, store: ExpertStore | None = None
) -> Drafting | None:
    """Return what drafts for a model; None: nobody.

    Args:
        settings: What was asked for.
        model: The model, with its draft layer if that is wanted and it has one.
        store: What reads its experts, if they are not all in memory.

    Raises:
        UnsupportedModel: A source was asked for by name and the model cannot use it.
    """
    config = settings.drafts
    if config.source == _OFF:
        return None
    if config.tokens == 0:
        _refuse(config, "COLI_DRAFT_TOKENS is 0")
        return None
    name = model.config.model_type
    if model.make_cache().has_state:
        _refuse(
            config,
            f"{name} cannot take a wrong guess back: its recurrent state belongs to one length",
        )
        return None
    drafters: list[Drafter] = []
    for source in _sources(config):
        if source is Source.GRAMMAR and config.grammar_tokens:
            drafters.append(GrammarDrafter(config.grammar_tokens))
        elif source is Source.NGRAM:
            drafters.append(NgramDrafter())
        elif source is Source.MTP and getattr(model, "can_draft", False):
            drafters.append(
                MtpDrafter(
                    cast("DraftModel", model), Batch(), settings.context_length, settings.kv_dtype
                )
            )
    if not drafters:
        _refuse(config, _why_none(config, name))
        return None
    if config.grammar_path is None and all(d.source is Source.GRAMMAR for d in drafters):
        tell("drafts come from grammars alone: replies without a grammar or schema have none")
    policy: Policy
    if config.tokens is not None:
        policy = FixedDepth(config.tokens)
    else:
        policy = CostPolicy(reads=None if store is None else _reads(store, model))
    guard = None
    if config.mtp_guard_percent:
        guard = Guard(Source.MTP, config.mtp_guard_percent, config.mtp_guard_window)
    return Drafting(drafters, model.config.vocab_size, policy, guard)


def _reads(store: ExpertStore, model: Model) -> MeasuredReads:
    counts = model.routing_counts  # a row for each mixture that every step runs
    return MeasuredReads(
        store.counters,
        0 if counts is None else len(counts),
        model.config.num_experts,
        model.config.num_experts_per_token,
    )


def _sources(config: DraftConfig) -> list[Source]:
    return list(Source) if config.source == _AUTO else [Source(config.source)]


def _why_none(config: DraftConfig, name: str) -> str:
    if config.source == Source.GRAMMAR:
        return "COLI_GRAMMAR_DRAFT is 0"
    if not config.has_mtp:
        return "COLI_MTP is 0"
    return f"this checkpoint of {name} has no draft layer, or one this version does not use"


def _refuse(config: DraftConfig, reason: str) -> None:
    """Refuse drafts that were asked for by name; only say it where they were a matter of course."""
    if config.source != _AUTO:
        raise UnsupportedModel(
            f"drafts from {config.source} are asked for, and {reason}",
            hint="set COLI_DRAFT to off or auto",
        )
    logger.info("no drafts: %s", reason)
