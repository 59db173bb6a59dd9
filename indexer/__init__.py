"""How a catalogue is made: image reading, encoders, channels, and the indexing pass."""

from .indexing import Progress, index_corpus
from .learning import learn_interest

__all__ = ["Progress", "index_corpus", "learn_interest"]
