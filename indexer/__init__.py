"""How a catalogue is made: image reading, encoders, channels, and the indexing pass."""

import os

# Read by torch once, at its first tensor: large ones lie on huge pages (`memory`).
os.environ.setdefault("THP_MEM_ALLOC_ENABLE", "1")

from .indexing import index_corpus
from .learning import learn_interest
from .passes import Progress
from .relating import interest_graph

__all__ = ["Progress", "index_corpus", "interest_graph", "learn_interest"]
