"""How a catalogue is made: image reading, encoders, channels, and the indexing pass."""

from .indexing import index_corpus
from .learning import learn_interest
from .passes import Progress
from .relating import interest_graph

__all__ = ["Progress", "index_corpus", "interest_graph", "learn_interest"]
