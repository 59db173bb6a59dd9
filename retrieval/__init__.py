"""How a catalogue is used: questions to interests, textures, relevance and visual tokens."""

from .allocation import Allocation, Allocator, TopKAllocator
from .attending import ALLOCATORS
from .matcher import Matcher
from .relevance import relevance
from .retriever import Retriever
from .types import Lookup, Match, Matches, Tier, Timings

__all__ = [
    "ALLOCATORS",
    "Allocation",
    "Allocator",
    "Lookup",
    "Match",
    "Matcher",
    "Matches",
    "Retriever",
    "Tier",
    "Timings",
    "TopKAllocator",
    "relevance",
]
