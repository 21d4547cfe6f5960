"""From a SUBMIT to a sequence that may run, or a refusal that says why.

Everything a request can get wrong is found here, before ACCEPT: afterwards only the machine can
fail. Knows options, defaults and limits; computes nothing.
"""

from __future__ import annotations

import logging
import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

from colibri_engine.errors import (
    BadOption,
    ContextLengthExceeded,
    ExpertReadFailed,
    OutOfKvBlocks,
    RequestRefused,
)
from colibri_engine.grammar import GrammarFault
from colibri_engine.loader.json_file import shown
from colibri_engine.sampling import Sampler, SamplingParams
from colibri_protocol.messages import (
    ErrorCode,
    RequestFailed,
    RequestOptions,
    Segment,
    SegmentKind,
    Submit,
    SubmitExtended,
)
from colibri_protocol.options import MAX_DRAFT

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np
    import numpy.typing as npt

    Ids = npt.NDArray[np.int32]

_T = TypeVar("_T")

logger = logging.getLogger(__name__)

# One position for the token that the last step computes and one spare, as older engines count.
RESERVED_POSITIONS: Final = 2


@dataclass(frozen=True, slots=True)
class GenerationDefaults:
    """What a request gets where it says nothing.

    `seed` None: each request draws its own.
    """

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    seed: int | None = None


class Admitted(NamedTuple):
    """A request found good: all that its sequence needs except a slot."""

    sampler: Sampler
    stop_ids: frozenset[int]
    max_new_tokens: int
    num_logprobs: int | None
    max_draft: int


@dataclass(frozen=True, slots=True)
class Admission:
    """The rules of one loaded model.

    Args:
        vocab_size: Token ids are below it.
        context_length: Positions of a slot.
        eos_ids: Tokens that end every reply, from all sources the checkpoint has.
        defaults: Values for options not given.
    """

    vocab_size: int
    context_length: int
    eos_ids: frozenset[int]
    defaults: GenerationDefaults

    @property
    def max_prompt_tokens(self) -> int:
        """The longest prompt that is accepted."""
        return self.context_length - RESERVED_POSITIONS

    def admit(self, options: RequestOptions, prompt: Ids) -> Admitted:
        """Check a request.

        Raises:
            RequestRefused: The prompt is empty or holds ids the model does not have.
            ContextLengthExceeded: It is too long; nothing is ever cut off.
            BadOption: An option cannot be honoured.
        """
        if prompt.size == 0:
            raise RequestRefused("EMPTY_PROMPT")
        if prompt.size > self.max_prompt_tokens:
            raise ContextLengthExceeded(prompt.size, self.max_prompt_tokens)
        if int(prompt.max()) >= self.vocab_size:
            raise RequestRefused(
                "BAD_REQUEST",
                f"the prompt holds token {prompt.max()}, for which the model has no weights: its "
                f"vocabulary has {self.vocab_size}",
            )
        sampler = Sampler(self._sampling(options), self.vocab_size, prompt)
        stop_ids = frozenset(options.stop_ids)
        if not options.ignore_eos:
            stop_ids |= self.eos_ids
        wanted = options.max_tokens or self.defaults.max_tokens
        room = self.context_length - prompt.size - 1
        max_draft = MAX_DRAFT if options.draft is None else options.draft
        return Admitted(sampler, stop_ids, min(wanted, room), options.logprobs, max_draft)

    def _sampling(self, options: RequestOptions) -> SamplingParams:
        own = self.defaults
        seed = options.seed if options.seed is not None else own.seed
        return SamplingParams(
            seed=secrets.randbits(64) if seed is None else seed,
            temperature=_given(options.temperature, own.temperature),
            top_p=_given(options.top_p, own.top_p),
            top_k=_given(options.top_k, own.top_k),
            min_p=_given(options.min_p, own.min_p),
            repetition_penalty=_given(options.repetition_penalty, own.repetition_penalty),
            frequency_penalty=options.frequency_penalty,
            presence_penalty=options.presence_penalty,
            logit_bias=options.logit_bias,
        )


def _given(value: _T | None, default: _T) -> _T:
    return default if value is None else value


def generation_value(config: Mapping[str, Any], name: str, default: float) -> float:
    """Return a number from `generation_config.json`, or the default when it has no usable one.

    One that cannot be used is named in a warning.
    """
    value = config.get(name)
    if value is None:
        return default
    if not isinstance(value, bool) and isinstance(value, int | float):
        options: dict[str, Any] = {name: value}
        try:  # the same ranges as for a request
            RequestOptions(**options)
        except BadOption:
            pass
        else:
            return value
    logger.warning(
        "the model's own %s = %s cannot be used; %g is taken", name, shown(value), default
    )
    return default


def extended(message: Submit) -> SubmitExtended:
    """Return a baseline request in the extended form.

    The prompt is fully rendered, so its special tokens count. A grammar there only ever meant
    drafts, which cannot change a reply: it is no option, and goes beside the request.
    """
    options = RequestOptions(
        max_tokens=message.max_tokens,
        temperature=message.temperature,
        top_p=message.top_p,
        top_k=0,
        min_p=0.0,
        repetition_penalty=1.0,
    )
    segments = (Segment(SegmentKind.CONTROL, message.prompt.decode()),)
    return SubmitExtended(message.id, message.slot, options, segments)


def refusal(request_id: int, error: Exception) -> RequestFailed:
    """Return the line that tells a gateway why a request ended."""
    match error:
        case RequestRefused():
            return RequestFailed(request_id, error.wire_code, error.detail)
        case ContextLengthExceeded():
            detail = f"{error.prompt_tokens} {error.limit}"
            return RequestFailed(request_id, ErrorCode.CONTEXT_EXCEEDED, detail)
        case GrammarFault():
            return RequestFailed(request_id, ErrorCode.BAD_REQUEST, f"grammar: {error}")
        case BadOption():
            return RequestFailed(request_id, ErrorCode.BAD_REQUEST, str(error))
        case ExpertReadFailed():
            return RequestFailed(request_id, ErrorCode.READ_FAILED, error.detail)
        case MemoryError() | OutOfKvBlocks():
            return RequestFailed(request_id, ErrorCode.OUT_OF_MEMORY, str(error))
        case _:
            detail = f"{type(error).__name__}: {error}"
            return RequestFailed(request_id, ErrorCode.INTERNAL, detail)
