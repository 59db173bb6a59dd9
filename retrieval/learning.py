"""What a retriever learns from what it is asked.

Questions are recorded in the catalogue's memory by a thread of their own, and what is recorded moves the
weights of interests: see `catalogue.observer` and `catalogue.weights`.
"""

from __future__ import annotations

from functools import cached_property
from time import time

from ..catalogue.catalogue import Catalogue
from ..catalogue.errors import UsageError
from ..catalogue.memory import Memory
from ..catalogue.observer import Observer
from .extraction import extract_phrases
from .types import Matches


class Learning:
    """The memory of a catalogue, as a retriever uses it.

    Args:
        catalogue: an open one. What was asked is written, at the latest, when it is closed.
        observe: whether to record what is asked. When None, if the settings of the catalogue say so and it is
            open to write.

    Attributes:
        observes: whether what is asked is recorded.
    """

    def __init__(self, catalogue: Catalogue, observe: bool | None) -> None:
        self._catalogue = catalogue
        self.observes = catalogue.settings.observe and catalogue.writable if observe is None else observe

    @cached_property
    def observer(self) -> Observer:
        """Records what is asked. Made when the first question is, with a thread and a connection.

        Raises:
            RegistryError: the registry cannot be written.
        """
        made = Observer(Memory.of(self._catalogue), extract_phrases)
        self._catalogue.before_close(made.end)
        return made

    def factors(self) -> dict[str, float]:
        """By phrase, what the weight of an interest is multiplied by now: `Use.factor`."""
        with Memory.of(self._catalogue, read_only=True) as memory:
            uses = memory.uses(time(), self._catalogue.settings.half_life)
        return {phrase: use.factor for phrase, use in uses.items()}

    def feedback(self, matches: Matches, useful: bool) -> None:
        """Note that the answer made from `matches` was useful, or was not.

        Raises:
            UsageError: there are no matches.
            ReadOnlyError: the catalogue is open to read, and nothing is recorded.
            RegistryError, StoreFullError: it cannot be written.
        """
        if not matches:
            raise UsageError("no interest has a part in this look-up, so there is none to credit")
        if not self.observes:
            self._catalogue.require_writable("note feedback")
        self.observer.feedback(matches, useful)

    def close(self) -> None:
        """Write what was asked. Nothing is recorded any more. May be called twice.

        What cannot be written is lost with a warning, as `Observer.end`.
        """
        self.observes = False
        if "observer" in self.__dict__:
            self.observer.end()
