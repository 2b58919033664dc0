"""synth as an Engine."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from musacoder_inference.engines.base import Declined, Event, Generated, GenerationRequest, Progress
from musacoder_inference.engines.synth.ir import NotCovered
from musacoder_inference.engines.synth.write import Form, write


class SynthEngine:
    """Writes kernels by rules. The same request always gives the same text, so one turn is all."""

    name = "synth"
    label = "synth (no model)"
    max_turns = 1

    def __init__(self, form: Form = "load_inline") -> None:
        """`form`: how a kernel for CUDA is compiled (docs/native-form.md)."""
        self._form = form

    async def generate(self, request: GenerationRequest) -> AsyncIterator[Event]:
        """Yields Progress, then one Generated or one Declined."""
        yield Progress("writing")
        if request.graph is None:
            yield Declined(request.graph_error or "the Reference has no operator graph")
            return
        try:
            # The work is pure Python of some milliseconds; in a thread it leaves the loop free.
            source = await asyncio.to_thread(
                write, request.reference, request.graph, request.backend, self._form
            )
        except NotCovered as reason:
            yield Declined(str(reason))
            return
        except Exception as error:
            # A graph that a rule does not expect must not end the server's job.
            yield Declined(f"synth cannot read this graph: {type(error).__name__}: {error}")
            return
        yield Generated(source)
